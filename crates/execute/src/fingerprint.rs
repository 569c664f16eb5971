//! Fingerprints of requests, to recognise retries.
//!
//! A turn id belongs to one request: a retry of the request returns the same answer, and another request with the id is
//! refused. Requests are compared by content, so that spelling, white space and the order of fields do not matter.
//! Neither does the delivery: a retry of a dropped stream may request a whole answer.

use amalgam_core::{Condition, store::Fingerprint};
use sha2::{Digest as _, Sha256};

use super::request::{Artifact, ClipboardImage, Contents, Continuation, Outcome, ToolResult, UserTurn};

impl UserTurn<'_> {
    /// The fingerprint of a request; equal for requests with equal content.
    pub fn fingerprint(&self) -> Fingerprint {
        let Self {
            session_id,
            turn_id,
            instruction,
            artifacts,
            images,
            file_ids,
            scope,
            hints,
            solution_context,
            agent_context_id,
            conversation_context_id,
            role_id,
            delivery: _,
        } = self;
        let mut digest = FingerprintInput::new("user turn");
        digest.text(session_id).text(turn_id).optional(instruction.as_deref());
        digest.count(artifacts.len());
        for Artifact { relative_path, file_name, contents, origin, mime_type, language } in artifacts {
            digest.text(relative_path).text(file_name).text(origin.name());
            match contents {
                Contents::Text(text) => digest.text("utf8").text(text),
                Contents::Base64(text) => digest.text("base64").text(text),
            };
            digest.optional(mime_type.as_deref()).optional(language.as_deref());
        }
        digest.count(images.len());
        for ClipboardImage { id, mime_type, data_base64 } in images {
            digest.text(id).text(mime_type).text(data_base64);
        }
        digest.count(file_ids.len());
        file_ids.iter().for_each(|id| _ = digest.text(id));
        digest.count(scope.len());
        for Condition { key, operator, values } in scope {
            digest.text(key).text(operator.name()).count(values.len());
            values.iter().for_each(|value| _ = digest.text(value));
        }
        for hint in [&hints.workspace_id, &hints.repo, &hints.language] {
            digest.optional(hint.as_deref());
        }
        for other in [solution_context, agent_context_id, conversation_context_id, role_id] {
            digest.optional(other.as_deref());
        }
        digest.finish()
    }
}

impl Continuation<'_> {
    /// The fingerprint of a submission; equal for submissions with equal content.
    pub fn fingerprint(&self) -> Fingerprint {
        let Self { session_id, turn_id, results } = self;
        let mut digest = FingerprintInput::new("continuation");
        digest.text(session_id).text(turn_id).count(results.len());
        // The duration of a call is not part of its outcome.
        for ToolResult { call_id, execution_ms: _, outcome } in results {
            digest.text(call_id);
            match outcome {
                Outcome::Result(text) => digest.text("result").text(text),
                Outcome::Error(text) => digest.text("error").text(text),
            };
        }
        digest.finish()
    }
}

/// The input of the digest: values prefixed by their lengths, so that different lists never collide.
struct FingerprintInput(Sha256);

impl FingerprintInput {
    fn new(kind: &str) -> Self {
        let mut input = Self(Sha256::new());
        input.text(kind);
        input
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.count(text.len());
        self.0.update(text.as_bytes());
        self
    }

    fn optional(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.count(1).text(text),
            None => self.count(0),
        }
    }

    fn count(&mut self, count: usize) -> &mut Self {
        self.0.update((count as u64).to_be_bytes());
        self
    }

    fn finish(self) -> Fingerprint {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use amalgam_protocol::Raw;
    use serde_json::{Value, json};

    use super::*;
    use crate::request::{Bounds, ExecuteRequest, read};

    fn fingerprint(body: &str) -> Fingerprint {
        match read(Raw::parse(body.as_bytes()).unwrap(), &Bounds::default()) {
            Ok(ExecuteRequest::UserTurn(turn)) => turn.fingerprint(),
            Ok(ExecuteRequest::Continuation(continuation)) => continuation.fingerprint(),
            Err(faults) => panic!("{faults}"),
        }
    }

    fn turn(more: Value) -> String {
        let mut body = json!({"SessionId": "s", "TurnId": "t", "Instruction": "ab"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    }

    #[test]
    fn what_says_the_same_is_the_same() {
        // C-11, R034-13
        let plain = fingerprint(&turn(json!({})));
        for same in [
            r#"{ "instruction" : "a\u0062", "turnId":"t", "sessionId":"s" }"#.to_owned(),
            turn(json!({"Streaming": true})),
            turn(json!({"Streaming": false, "Repo": null, "RagScope": {"Conditions": []}, "FileIds": []})),
        ] {
            assert_eq!(fingerprint(&same), plain, "{same}");
        }
    }

    #[test]
    fn whatever_says_something_else_is_another() {
        // C-11
        let artifact = |name: &str, contents: &str, origin: &str| json!({"RelativePath": name, "FileName": name, "Contents": contents, "Origin": origin});
        let image = |data: &str| json!({"Id": "i", "MimeType": "image/png", "DataBase64": data});
        let scope = |key: &str, operator: &str, values: Value| json!({"RagScope": [{"Key": key, "Operator": operator, "Values": values}]});
        let result = |id: &str, outcome: Value| {
            let mut result = json!({"ToolCallId": id, "ExecutionMs": 1});
            result.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
            result
        };
        let continuation =
            |results: Value| json!({"SessionId": "s", "TurnId": "t", "ToolResults": results}).to_string();
        let bodies = [
            turn(json!({})),
            turn(json!({"SessionId": "s2"})),
            turn(json!({"TurnId": "t2"})),
            turn(json!({"Instruction": "a"})),
            turn(json!({"InputArtifacts": [artifact("a", "x", "ide")]})),
            turn(json!({"InputArtifacts": [artifact("a", "x", "user")]})),
            turn(json!({"InputArtifacts": [artifact("b", "x", "ide")]})),
            turn(json!({"InputArtifacts": [artifact("a", "x", "ide"), artifact("a", "x", "ide")]})),
            turn(json!({"ClipboardImages": [image("AAAA")]})),
            turn(json!({"ClipboardImages": [image("AAAB")]})),
            turn(json!({"FileIds": ["ab"]})),
            turn(json!({"FileIds": ["a", "b"]})),
            turn(json!({"FileIds": ["ab", "c"]})),
            turn(json!({"FileIds": ["a", "bc"]})),
            turn(scope("k", "==", json!(["v"]))),
            turn(scope("k", "!=", json!(["v"]))),
            turn(scope("k", "==", json!(["v", "v"]))),
            turn(json!({"WorkspaceId": "x"})),
            turn(json!({"Repo": "x"})),
            turn(json!({"Language": "x"})),
            turn(json!({"SolutionContextText": "x"})),
            turn(json!({"SolutionContextText": ""})),
            turn(json!({"AgentContextId": "x"})),
            turn(json!({"ConversationContextId": "x"})),
            continuation(json!([result("c", json!({"ResultJson": "x"}))])),
            continuation(json!([result("c", json!({"ErrorMessage": "x"}))])),
            continuation(json!([result("d", json!({"ResultJson": "x"}))])),
            continuation(json!([result("c", json!({"ResultJson": "x"})), result("d", json!({"ResultJson": "x"}))])),
            continuation(json!([result("d", json!({"ResultJson": "x"})), result("c", json!({"ResultJson": "x"}))])),
        ];
        let fingerprints: HashSet<Fingerprint> = bodies.iter().map(|body| fingerprint(body)).collect();
        assert_eq!(fingerprints.len(), bodies.len());
    }

    #[test]
    fn how_long_a_call_took_is_no_difference() {
        let submitted = |duration: f64| {
            let result = json!({"ToolCallId": "c", "ExecutionMs": duration, "ResultJson": "x"});
            fingerprint(&json!({"SessionId": "s", "TurnId": "t", "ToolResults": [result]}).to_string())
        };
        assert_eq!(submitted(1.0), submitted(2.5));
    }
}
