//! `amalgam chat`: a chat with a tenant's assistant in a terminal, over the same HTTP API that products use.

mod call;
mod screen;

use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::server_client::{self, ServerAddress};
use crate::terminal::{print_part, print_stderr};
use call::{Call, Event};
use screen::Screen;

/// Inputs that end the chat, besides the end of the input.
const QUIT: &str = "/quit";

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// Profile to chat with, such as home-assistant
    #[arg(long, value_name = "SLUG")]
    agent: Option<String>,
    /// Server URL
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The tenant's API key; prefer the environment variable, so that the key does not appear in the process list
    #[arg(long, env = "AMALGAM_KEY", hide_env_values = true, value_name = "KEY", value_parser = secret)]
    key: Option<SecretString>,
    /// User on whose behalf messages are sent
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Id of the course that the user is viewing
    #[arg(long, value_name = "ID")]
    course_id: Option<i64>,
    /// Print each complete answer as one line of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: ChatArgs) -> anyhow::Result<ExitCode> {
    let place = ServerAddress::read(&args.url)?;
    let asks = io::stdin().is_terminal() && !args.json;
    let mut screen = if args.json { Screen::data() } else { Screen::people() };
    if let Some(agent) = &args.agent {
        check_agent(&place, &args, agent).await?;
    }
    let mut code = ExitCode::SUCCESS;
    loop {
        if asks {
            print_part("> ")?;
        }
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).context("reading standard input")? == 0 {
            break;
        }
        match line.trim() {
            "" => continue,
            QUIT => break,
            message => {
                if let Err(error) = answer(&place, &args, message, &mut screen).await {
                    screen.end()?;
                    print_stderr(format_args!("amalgam: {error:#}"));
                    code = ExitCode::from(crate::FAILURE);
                }
            }
        }
    }
    Ok(code)
}

/// Refuses a profile that the tenant does not have: the assistant API would answer without any profile.
async fn check_agent(place: &ServerAddress, args: &ChatArgs, agent: &str) -> anyhow::Result<()> {
    let slug = utf8_percent_encode(agent, NON_ALPHANUMERIC);
    let get = |path: String| async move { server_client::get(place, key(args), args.user.as_deref(), &path).await };
    let (mut status, card) = get(format!("/v1/models/{slug}")).await?;
    // The server prefers a model to a profile with the same name; an administrator can check whether there is also such
    // a profile.
    if status == StatusCode::OK && card["capabilities"]["wire"] != "profile" {
        (status, _) = get(format!("/admin/profiles/{slug}")).await?;
    }
    // Other errors are reported when the first message is sent.
    match status {
        StatusCode::NOT_FOUND => {
            bail!("the tenant has no active agent `{agent}`; `amalgam check --tenant ID` lists them")
        }
        _ => Ok(()),
    }
}

fn key(args: &ChatArgs) -> Option<&str> {
    args.key.as_ref().map(|key| key.expose_secret()).filter(|key| !key.is_empty())
}

/// Sends a message, and prints the answer as it streams.
async fn answer(place: &ServerAddress, args: &ChatArgs, message: &str, screen: &mut Screen) -> anyhow::Result<()> {
    let mut body = json!({"message": message});
    if let Some(agent) = &args.agent {
        body["agent"] = json!(agent);
    }
    if let Some(course_id) = args.course_id {
        body["metadata"] = json!({"course_id": course_id});
    }
    let mut call = Call::start(place, key(args), args.user.as_deref(), &body).await?;
    while let Some(event) = call.next().await? {
        match event {
            Event::Delta(text) => screen.text(&text)?,
            Event::ToolCall { name, arguments } => screen.tool(&name, &arguments)?,
            Event::Done(answer) => return Ok(screen.done(&answer)?),
            Event::Failed(detail) => bail!("{detail}"),
        }
    }
    bail!("the answer ended early")
}

fn secret(text: &str) -> Result<SecretString, String> {
    match text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(SecretString::from(text.to_owned())),
        false => Err("a key has visible characters only".to_owned()),
    }
}

/// The error message of a server that refused a message: `detail`, or the errors by field.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_slice(body) else {
        return format!("the server answered {status}");
    };
    match fields.get("detail").and_then(Value::as_str) {
        Some(detail) => format!("{detail} ({status})"),
        None => {
            let words = |value: &Value| match value.as_array() {
                Some(texts) => texts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
                None => value.to_string(),
            };
            let faults: Vec<String> =
                fields.iter().map(|(field, value)| format!("{field}: {}", words(value))).collect();
            format!("{} ({status})", faults.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_in_the_words_of_the_door() {
        let report = |body: &str| refusal(StatusCode::BAD_REQUEST, body.as_bytes());
        assert_eq!(report(r#"{"detail": "Not today."}"#), "Not today. (400 Bad Request)");
        let body = r#"{"agent": ["Too long."], "message": ["One.", "Two."]}"#;
        assert_eq!(report(body), "agent: Too long.; message: One. Two. (400 Bad Request)");
        assert_eq!(report("<html>"), "the server answered 400 Bad Request");
    }
}
