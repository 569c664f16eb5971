//! One request through a route, read and compared word by word, before anything is measured on it.

use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use serde_json::Value;

use super::Route;
use crate::answers::{ANSWER, TOKENS};
use crate::client::Connection;
use crate::requests::Scenario;

/// Fails unless the answer is the mock's: its text, its usage and, streamed, the same text in the deltas.
pub(super) async fn check(route: &Route, scenario: Scenario) -> anyhow::Result<()> {
    let job = route.job(scenario);
    let response = Connection::open(&job).await?.send(&job).await?;
    let body = response.into_body().collect().await.context("reading the answer")?.to_bytes();
    let text = std::str::from_utf8(&body).context("the answer is no text")?;
    if scenario.streamed() { check_events(text) } else { check_response(&serde_json::from_str(text)?) }
}

fn check_events(text: &str) -> anyhow::Result<()> {
    let mut deltas = String::new();
    let mut completed = None;
    for line in text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|line| *line != "[DONE]") {
        let mut event: Value = serde_json::from_str(line).with_context(|| format!("event {line}"))?;
        match event["type"].as_str() {
            Some("response.output_text.delta") => deltas.push_str(event["delta"].as_str().unwrap_or_default()),
            Some("response.completed") => completed = Some(event["response"].take()),
            _ => {}
        }
    }
    ensure!(deltas == ANSWER, "the deltas say `{deltas}`");
    check_response(&completed.context("no response.completed came")?)
}

fn check_response(response: &Value) -> anyhow::Result<()> {
    let output = response["output"].as_array().context("the response has no output")?;
    let message = output.iter().find(|item| item["type"] == "message").context("the output has no message")?;
    let text = message["content"][0]["text"].as_str().unwrap_or_default();
    ensure!(text == ANSWER, "the message says `{text}`");
    ensure!(response["status"] == "completed", "status is {}", response["status"]);
    ensure!(response["usage"]["output_tokens"] == TOKENS, "usage is {}", response["usage"]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers;

    #[test]
    fn the_mocks_own_answers_pass_and_a_changed_word_does_not() {
        let script = answers::response_script();
        let stream: Vec<u8> = (0..script.len()).flat_map(|at| script.frame(at).unwrap().to_vec()).collect();
        let stream = String::from_utf8(stream).unwrap();
        let whole = String::from_utf8(answers::response().to_vec()).unwrap();

        check_events(&stream).unwrap();
        check_response(&serde_json::from_str(&whole).unwrap()).unwrap();
        assert!(check_events(&stream.replacen("\" proxy\"", "\" prxoy\"", 1)).is_err());
        assert!(check_response(&serde_json::from_str(&whole.replace("proxy", "prxoy")).unwrap()).is_err());
    }
}
