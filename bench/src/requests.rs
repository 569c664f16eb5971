//! The requests that the load consists of, as real clients write them: `type` first in every item.

use bytes::Bytes;

use crate::answers::quoted;

/// One kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// A short question, answered in one JSON body.
    Plain,
    /// The same answer to the 100 KB that an agent sends after some steps of work.
    Large,
    /// A stream whose events arrive as fast as they can be written.
    Burst,
    /// A stream of 50 tokens a second.
    Paced,
    /// A stream of two tokens a second: open for long, with little to do.
    Slow,
}

/// Whether a response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Unstored,
    Stored,
}

/// An API of the server that takes a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// `/v1/responses`
    Responses,
    /// `/api/v2/ai-agent`
    Assistant,
    /// `/api/agent`
    Execute,
}

impl Wire {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Responses => "/v1/responses",
            Self::Assistant => "/api/v2/ai-agent/respond/",
            Self::Execute => "/api/agent/execute",
        }
    }

    /// What a request says, where it does not depend on a session.
    pub(crate) fn body(self) -> Bytes {
        Bytes::from(format!(r#"{{"message":{}}}"#, quoted(QUESTION)))
    }
}

/// The first turn of a session of the strict contract.
pub(crate) fn execute_body(session: &str) -> Bytes {
    let (session, question) = (quoted(session), quoted(QUESTION));
    Bytes::from(format!(r#"{{"SessionId":{session},"TurnId":"turn-1","Instruction":{question}}}"#))
}

impl Scenario {
    pub(crate) fn streamed(self) -> bool {
        match self {
            Self::Plain | Self::Large => false,
            Self::Burst | Self::Paced | Self::Slow => true,
        }
    }

    fn model(self) -> &'static str {
        match self {
            Self::Plain | Self::Large => "plain",
            Self::Burst => "burst",
            Self::Paced => "paced",
            Self::Slow => "slow",
        }
    }

    /// The body of `POST /v1/responses`. `prefix` is the `UPSTREAM/` that a gateway needs before the model's name.
    pub(crate) fn body(self, prefix: &str, storage: Storage) -> Bytes {
        let stored = storage == Storage::Stored;
        let model = quoted(&format!("{prefix}{}", self.model()));
        let streamed = self.streamed();
        let (instructions, input, tools) = match self {
            Self::Large => (AGENT_PROMPT, history(), TOOLS),
            _ => ("You are a helpful assistant. Answer in one paragraph.", question(), "[]"),
        };
        let instructions = quoted(instructions);
        Bytes::from(format!(
            r#"{{"model":{model},"instructions":{instructions},"input":{input},"tools":{tools},"tool_choice":"auto","parallel_tool_calls":true,"store":{stored},"stream":{streamed}}}"#
        ))
    }
}

/// The next turn of a stored chain; the first one without `previous`.
pub(crate) fn chained_body(prefix: &str, previous: Option<&str>) -> Bytes {
    let model = quoted(&format!("{prefix}{}", Scenario::Plain.model()));
    let input = question();
    let previous = previous.map_or_else(String::new, |id| format!(r#","previous_response_id":{}"#, quoted(id)));
    Bytes::from(format!(r#"{{"model":{model},"input":{input}{previous},"store":true}}"#))
}

impl std::str::FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(text: &str) -> Result<Self, UnknownScenario> {
        match text {
            "plain" => Ok(Self::Plain),
            "large" => Ok(Self::Large),
            "burst" => Ok(Self::Burst),
            "paced" => Ok(Self::Paced),
            "slow" => Ok(Self::Slow),
            _ => Err(UnknownScenario),
        }
    }
}

#[derive(Debug)]
pub(crate) struct UnknownScenario;

impl std::fmt::Display for UnknownScenario {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("scenarios are plain, large, burst, paced and slow")
    }
}

impl std::error::Error for UnknownScenario {}

const AGENT_PROMPT: &str = "You are a coding agent in the user's terminal.\n\n- Read before you write.\n- Prefer small \
patches.\n- Run the tests after every change and quote the line that failed, e.g. \"assertion `left == right` failed\".";

const TOOLS: &str = r#"[{"type":"function","name":"read_file","description":"Reads a file and returns its lines with numbers.","strict":true,"parameters":{"type":"object","properties":{"path":{"type":"string","description":"Path relative to the workspace"},"first_line":{"type":["integer","null"]},"last_line":{"type":["integer","null"]}},"required":["path","first_line","last_line"],"additionalProperties":false}},{"type":"function","name":"run_command","description":"Runs a shell command and returns its output.","strict":false,"parameters":{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"}},"workdir":{"type":"string"},"timeout_ms":{"type":"integer","minimum":1}},"required":["command"]}},{"type":"function","name":"apply_patch","description":"Applies a patch in the \"unified\" format.","strict":true,"parameters":{"type":"object","properties":{"patch":{"type":"string"}},"required":["patch"],"additionalProperties":false}},{"type":"function","name":"search","description":"Finds lines that match a regular expression.","strict":false,"parameters":{"type":"object","properties":{"pattern":{"type":"string"},"glob":{"type":"string"},"limit":{"type":"integer","default":50}},"required":["pattern"]}}]"#;

const QUESTION: &str = "What does a gateway cost compared with a proxy?";

fn question() -> String {
    let text = quoted(QUESTION);
    format!(r#"[{{"type":"message","role":"user","content":[{{"type":"input_text","text":{text}}}]}}]"#)
}

/// One task and thirteen steps of work on it, each an explanation, a call and its output: 40 items, about 100 KB.
fn history() -> String {
    let mut items =
        vec![message("user", "input_text", "Please make the \"strict\" parser accept tabs,\nthen run the tests.")];
    for step in 0..13 {
        let path = format!("src/parser/part_{step}.rs");
        let thought = format!("Next I look at `{path}`, where the \"strict\" mode is read.\nIt may need a change too.");
        items.push(message("assistant", "output_text", &thought));
        let arguments = quoted(&format!(r#"{{"path":"{path}","first_line":1,"last_line":null}}"#));
        items.push(format!(
            r#"{{"type":"function_call","id":"fc_{step:024}","call_id":"call_{step:024}","name":"read_file","arguments":{arguments},"status":"completed"}}"#
        ));
        let output = quoted(&source_file(step));
        items.push(format!(r#"{{"type":"function_call_output","call_id":"call_{step:024}","output":{output}}}"#));
    }
    format!("[{}]", items.join(","))
}

fn message(role: &str, part: &str, text: &str) -> String {
    let text = quoted(text);
    format!(r#"{{"type":"message","role":"{role}","content":[{{"type":"{part}","text":{text}}}]}}"#)
}

/// Code as a tool returns it: short lines, indentation, quotes, a backslash here and there.
fn source_file(step: usize) -> String {
    let mut text = String::new();
    for line in 1..=108 {
        let number = step * 100 + line;
        text.push_str(&match line % 4 {
            0 => format!("{line:>5}\t}}\n"),
            1 => format!("{line:>5}\tfn field_{number}(input: &str) -> Result<Field, ParseError> {{\n"),
            2 => format!(
                "{line:>5}\t    let value = input.strip_prefix(\"field_{number}\\t\").ok_or(ParseError::Missing(\"field_{number}\"))?;\n"
            ),
            _ => format!("{line:>5}\t    Ok(Field::new({number}, value.trim_end_matches(['\\n', '\"'])))\n"),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_large_request_is_an_agent_history_of_forty_items_and_a_hundred_kilobytes() {
        let body = Scenario::Large.body("chat/", Storage::Unstored);
        let request: Value = serde_json::from_slice(&body).unwrap();

        assert!((95_000..=108_000).contains(&body.len()), "{} bytes", body.len());
        assert_eq!(request["input"].as_array().unwrap().len(), 40);
        assert_eq!(request["tools"].as_array().unwrap().len(), 4);
        assert_eq!(request["model"], "chat/plain");
        let arguments = request["input"][2]["arguments"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(arguments).is_ok());
        assert_eq!(request["input"][2]["call_id"], request["input"][3]["call_id"]);
    }

    #[test]
    fn only_what_is_kept_is_stored_and_streams_ask_for_a_stream() {
        for scenario in [Scenario::Plain, Scenario::Large, Scenario::Burst, Scenario::Paced, Scenario::Slow] {
            for (storage, stored) in [(Storage::Unstored, false), (Storage::Stored, true)] {
                let request: Value = serde_json::from_slice(&scenario.body("", storage)).unwrap();

                assert_eq!(request["store"], stored);
                assert_eq!(request["stream"], scenario.streamed());
            }
        }
    }

    #[test]
    fn a_chain_goes_on_from_the_response_before() {
        let first: Value = serde_json::from_slice(&chained_body("chat/", None)).unwrap();
        let second: Value = serde_json::from_slice(&chained_body("chat/", Some("resp_1"))).unwrap();

        assert!(first.get("previous_response_id").is_none());
        assert_eq!(second["previous_response_id"], "resp_1");
        assert_eq!((&second["model"], &second["store"]), (&Value::from("chat/plain"), &Value::from(true)));
    }
}
