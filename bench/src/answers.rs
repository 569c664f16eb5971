//! What the mock provider says: one answer of 100 tokens, rendered once in every shape that a client may ask for.
//!
//! The shapes follow OpenAI's own output key by key (fingerprints, nulls, log probabilities, empty usage in every
//! chunk), because a server's cost depends on the bytes that it has to look at. Rendered before the first
//! request, so that the mock's own work does not grow into the measurement.

use bytes::Bytes;

/// The answer; every word with the space before it is one token.
pub(crate) const ANSWER: &str = "\
A pass-through proxy reads each request, opens a connection to its upstream and copies bytes in both directions until \
one side is done. It has no opinion about what those bytes mean, which makes it cheap and also makes it useless \
whenever two sides speak different languages. A gateway has to read, to understand and to write again: \"tools\" become \
functions, items become messages, and a café menu must stay exactly what it was.\nThe interesting question is how \
little this costs when nothing is copied twice, nothing is parsed that clients ignore, and frames that arrive together \
also leave together.";

/// How many tokens every answer has.
pub(crate) const TOKENS: usize = 100;

const MODEL: &str = "mock-1";
const CREATED: u64 = 1_767_225_600;
const PROMPT_TOKENS: usize = 24;

/// A stream in three acts: what comes before the first token, the tokens, and what ends it. Each entry is one SSE frame.
pub(crate) struct Script {
    pub(crate) lead: Vec<Bytes>,
    pub(crate) tokens: Vec<Bytes>,
    pub(crate) tail: Vec<Bytes>,
}

impl Script {
    pub(crate) fn len(&self) -> usize {
        self.lead.len() + self.tokens.len() + self.tail.len()
    }

    pub(crate) fn frame(&self, position: usize) -> Option<&Bytes> {
        self.lead.iter().chain(&self.tokens).chain(&self.tail).nth(position)
    }
}

/// The answer cut into its tokens; joined again they are the answer.
pub(crate) fn tokens() -> impl Iterator<Item = &'static str> {
    let mut rest = ANSWER;
    std::iter::from_fn(move || {
        // Searching from 1 keeps the leading space with its word.
        let end = rest.char_indices().skip(1).find(|(_, letter)| *letter == ' ').map_or(rest.len(), |(at, _)| at);
        let (token, behind) = rest.split_at(end);
        rest = behind;
        (!token.is_empty()).then_some(token)
    })
}

/// The body of a `POST /v1/chat/completions` that is not streamed.
pub(crate) fn chat_completion() -> Bytes {
    let content = quoted(ANSWER);
    let usage = chat_usage();
    Bytes::from(format!(
        r#"{{"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion","created":{CREATED},"model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":{content},"refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"stop"}}],"usage":{usage},"service_tier":"default","system_fingerprint":"fp_44709d6fcb"}}"#
    ))
}

/// Whether the caller asked for `stream_options.include_usage`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamUsage {
    Included,
    Absent,
}

/// The chunks of a streamed chat completion.
pub(crate) fn chat_script(usage: StreamUsage) -> Script {
    let chunk = |choices: &str, usage_value: &str| {
        let usage_key = match usage {
            StreamUsage::Included => format!(r#","usage":{usage_value}"#),
            StreamUsage::Absent => String::new(),
        };
        Bytes::from(format!(
            "data: {{\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",\"object\":\"chat.completion.chunk\",\"created\":{CREATED},\"model\":\"{MODEL}\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_44709d6fcb\",\"choices\":[{choices}]{usage_key}}}\n\n"
        ))
    };
    let delta = |delta: &str, finish_reason: &str| {
        chunk(&format!(r#"{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish_reason}}}"#), "null")
    };
    let mut tail = vec![delta("{}", r#""stop""#)];
    if usage == StreamUsage::Included {
        tail.push(chunk("", &chat_usage()));
    }
    tail.push(done());
    Script {
        lead: vec![delta(r#"{"role":"assistant","content":"","refusal":null}"#, "null")],
        tokens: tokens().map(|token| delta(&format!(r#"{{"content":{}}}"#, quoted(token)), "null")).collect(),
        tail,
    }
}

/// The body of a `POST /v1/responses` that is not streamed.
pub(crate) fn response() -> Bytes {
    Bytes::from(response_object(Progress::Completed))
}

/// The events of a streamed response: the whole life cycle, numbered.
pub(crate) fn response_script() -> Script {
    let mut sequence_number = 0;
    let mut event = |kind: &str, fields: &str| {
        let frame =
            format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{sequence_number},{fields}}}\n\n");
        sequence_number += 1;
        Bytes::from(frame)
    };
    let part_of = format!(r#""item_id":"{MESSAGE_ID}","output_index":0,"content_index":0"#);
    let running = format!(r#""response":{}"#, response_object(Progress::Running));
    let text = quoted(ANSWER);
    let lead = vec![
        event("response.created", &running),
        event("response.in_progress", &running),
        event("response.output_item.added", &format!(r#""output_index":0,"item":{}"#, message(Progress::Running))),
        event("response.content_part.added", &format!(r#"{part_of},"part":{}"#, text_part(r#""""#))),
    ];
    let tokens = tokens()
        .map(|token| {
            let fields = format!(r#"{part_of},"delta":{},"logprobs":[],"obfuscation":"pD9lHkTeWbzR""#, quoted(token));
            event("response.output_text.delta", &fields)
        })
        .collect();
    let tail = vec![
        event("response.output_text.done", &format!(r#"{part_of},"text":{text},"logprobs":[]"#)),
        event("response.content_part.done", &format!(r#"{part_of},"part":{}"#, text_part(&text))),
        event("response.output_item.done", &format!(r#""output_index":0,"item":{}"#, message(Progress::Completed))),
        event("response.completed", &format!(r#""response":{}"#, response_object(Progress::Completed))),
        done(),
    ];
    Script { lead, tokens, tail }
}

/// The body of a `POST /v1/messages` that is not streamed.
pub(crate) fn message_whole() -> Bytes {
    let text = quoted(ANSWER);
    Bytes::from(message_object(&format!(r#"{{"type":"text","text":{text}}}"#), r#""end_turn""#, TOKENS))
}

/// The events of a streamed message.
pub(crate) fn message_script() -> Script {
    let event =
        |kind: &str, fields: &str| Bytes::from(format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{fields}}}\n\n"));
    let lead = vec![
        event("message_start", &format!(r#","message":{}"#, message_object("", "null", 1))),
        event("content_block_start", r#","index":0,"content_block":{"type":"text","text":""}"#),
        event("ping", ""),
    ];
    let tokens = tokens()
        .map(|token| {
            let delta = format!(r#","index":0,"delta":{{"type":"text_delta","text":{}}}"#, quoted(token));
            event("content_block_delta", &delta)
        })
        .collect();
    let end =
        format!(r#","delta":{{"stop_reason":"end_turn","stop_sequence":null}},"usage":{{"output_tokens":{TOKENS}}}"#);
    let tail =
        vec![event("content_block_stop", r#","index":0"#), event("message_delta", &end), event("message_stop", "")];
    Script { lead, tokens, tail }
}

/// The body of `GET /v1/models`.
pub(crate) fn models(names: &[&str]) -> Bytes {
    let entries: Vec<String> = names
        .iter()
        .map(|name| format!(r#"{{"id":"{name}","object":"model","created":{CREATED},"owned_by":"mock"}}"#))
        .collect();
    Bytes::from(format!(r#"{{"object":"list","data":[{}]}}"#, entries.join(",")))
}

const MESSAGE_ID: &str = "msg_67ccd2bf17f0819081ff3bb2cf6508e60bb6a6b452d3795b";

#[derive(Clone, Copy)]
enum Progress {
    Running,
    Completed,
}

fn response_object(progress: Progress) -> String {
    let total = PROMPT_TOKENS + TOKENS;
    let (status, completed_at, output, usage) = match progress {
        Progress::Running => ("in_progress", "null".to_owned(), String::new(), "null".to_owned()),
        Progress::Completed => (
            "completed",
            (CREATED + 2).to_string(),
            message(progress),
            format!(
                r#"{{"input_tokens":{PROMPT_TOKENS},"input_tokens_details":{{"cached_tokens":0,"cache_write_tokens":0}},"output_tokens":{TOKENS},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{total}}}"#
            ),
        ),
    };
    format!(
        r#"{{"id":"resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b","object":"response","created_at":{CREATED},"completed_at":{completed_at},"status":"{status}","incomplete_details":null,"model":"{MODEL}","previous_response_id":null,"instructions":null,"output":[{output}],"error":null,"tools":[],"tool_choice":"auto","truncation":"disabled","parallel_tool_calls":true,"text":{{"format":{{"type":"text"}},"verbosity":"medium"}},"top_p":1.0,"presence_penalty":0.0,"frequency_penalty":0.0,"top_logprobs":0,"temperature":1.0,"reasoning":{{"effort":null,"summary":null}},"usage":{usage},"max_output_tokens":null,"max_tool_calls":null,"store":false,"background":false,"service_tier":"default","metadata":{{}},"safety_identifier":null,"prompt_cache_key":null}}"#
    )
}

fn message_object(content: &str, stop_reason: &str, output_tokens: usize) -> String {
    format!(
        r#"{{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","model":"{MODEL}","content":[{content}],"stop_reason":{stop_reason},"stop_sequence":null,"usage":{{"input_tokens":{PROMPT_TOKENS},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":{output_tokens},"service_tier":"standard"}}}}"#
    )
}

fn message(progress: Progress) -> String {
    let (status, content) = match progress {
        Progress::Running => ("in_progress", String::new()),
        Progress::Completed => ("completed", text_part(&quoted(ANSWER))),
    };
    format!(r#"{{"id":"{MESSAGE_ID}","type":"message","status":"{status}","role":"assistant","content":[{content}]}}"#)
}

fn text_part(quoted_text: &str) -> String {
    format!(r#"{{"type":"output_text","annotations":[],"logprobs":[],"text":{quoted_text}}}"#)
}

fn chat_usage() -> String {
    let total = PROMPT_TOKENS + TOKENS;
    format!(
        r#"{{"prompt_tokens":{PROMPT_TOKENS},"completion_tokens":{TOKENS},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}"#
    )
}

fn done() -> Bytes {
    Bytes::from_static(b"data: [DONE]\n\n")
}

/// A JSON string with its quotes.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is always valid JSON")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The JSON after `data: ` of each frame, the final marker left out.
    fn data(script: &Script) -> Vec<Value> {
        let mut frames: Vec<&str> =
            (0..script.len()).map(|at| std::str::from_utf8(script.frame(at).unwrap()).unwrap()).collect();
        assert_eq!(frames.pop(), Some("data: [DONE]\n\n"));
        frames
            .into_iter()
            .map(|frame| {
                let line = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                assert!(frame.ends_with("\n\n"));
                serde_json::from_str(line).unwrap()
            })
            .collect()
    }

    #[test]
    fn the_answer_has_one_hundred_tokens_that_join_to_the_text() {
        assert_eq!(tokens().count(), TOKENS);
        assert_eq!(tokens().collect::<String>(), ANSWER);
    }

    #[test]
    fn chat_chunks_carry_the_text_a_finish_reason_and_usage_only_when_asked() {
        let with_usage = data(&chat_script(StreamUsage::Included));
        let without = data(&chat_script(StreamUsage::Absent));

        let text: String =
            with_usage.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, ANSWER);
        assert_eq!(with_usage[with_usage.len() - 2]["choices"][0]["finish_reason"], "stop");
        assert_eq!(with_usage.last().unwrap()["usage"]["completion_tokens"], TOKENS);
        assert!(with_usage.first().unwrap()["usage"].is_null());
        assert!(without.iter().all(|chunk| chunk.get("usage").is_none()));
    }

    #[test]
    fn response_events_follow_the_life_cycle_and_are_numbered() {
        let events = data(&response_script());

        let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        kinds.dedup();
        assert_eq!(
            kinds,
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.completed",
            ]
        );
        for (at, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], at);
        }
        let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
        assert_eq!(text, ANSWER);
        assert_eq!(events.last().unwrap()["response"]["output"][0]["content"][0]["text"], ANSWER);
    }

    #[test]
    fn message_events_carry_the_text_between_the_start_and_the_stop() {
        let script = message_script();
        let events: Vec<Value> = (0..script.len())
            .map(|at| {
                let frame = std::str::from_utf8(script.frame(at).unwrap()).unwrap();
                let (kind, data) = frame.trim_end().split_once("\ndata: ").unwrap();
                let event: Value = serde_json::from_str(data).unwrap();
                assert_eq!(kind.strip_prefix("event: "), event["type"].as_str());
                event
            })
            .collect();

        let text: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
        assert_eq!(text, ANSWER);
        assert_eq!(events.first().unwrap()["message"]["usage"]["input_tokens"], PROMPT_TOKENS);
        assert_eq!(events[events.len() - 2]["usage"]["output_tokens"], TOKENS);
        assert_eq!(events.last().unwrap()["type"], "message_stop");
    }

    #[test]
    fn whole_answers_are_valid_json_with_text_and_usage() {
        let chat: Value = serde_json::from_slice(&chat_completion()).unwrap();
        let message: Value = serde_json::from_slice(&message_whole()).unwrap();
        assert_eq!(message["content"][0]["text"], ANSWER);
        assert_eq!(message["usage"]["output_tokens"], TOKENS);
        let response: Value = serde_json::from_slice(&response()).unwrap();

        assert_eq!(chat["choices"][0]["message"]["content"], ANSWER);
        assert_eq!(chat["usage"]["total_tokens"], PROMPT_TOKENS + TOKENS);
        assert_eq!(response["output"][0]["content"][0]["text"], ANSWER);
        assert_eq!(response["usage"]["output_tokens"], TOKENS);
        assert_eq!(response.as_object().unwrap().len(), 31);
        let list: Value = serde_json::from_slice(&models(&["a", "b"])).unwrap();
        assert_eq!(list["data"][1]["id"], "b");
    }
}
