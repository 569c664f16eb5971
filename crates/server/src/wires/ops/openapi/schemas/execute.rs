//! What the strict turn contract takes and gives. Names are in Pascal case unless the operator has set another one.

use serde_json::{Value, json};

use super::{Schemas, list_of, object, reference, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("AgentUserTurn", user_turn()),
        ("AgentToolContinuation", continuation()),
        ("AgentToolResult", tool_result()),
        ("AgentInputArtifact", artifact()),
        ("AgentClipboardImage", image()),
        ("AgentRagCondition", condition()),
        ("AgentExecuteResponse", object("The answer.", ENVELOPE, envelope())),
        ("AgentToolCall", call()),
        ("AgentServerToolCall", server_call()),
        ("AgentSource", source()),
        ("AgentRefusal", refusal()),
        ("NewAgentSession", new_session()),
        ("AgentSession", session()),
        ("AgentSessionList", page("Sessions", "AgentSession")),
        (
            "DeletedAgentSession",
            object(
                "It is gone.",
                &["SessionId", "Deleted"],
                json!({"SessionId": text("Which."), "Deleted": {"const": true}}),
            ),
        ),
        ("AgentModeChange", mode_change()),
        ("AgentTurn", turn()),
        ("AgentTurnList", page("Turns", "AgentTurn")),
    ]
}

fn user_turn() -> Value {
    let mut turn = object(
        "A new turn: an instruction, files or images, or several of them. Fields of the server's (modes, models, prompts, \
         tools, ids of providers) are refused.",
        &["SessionId", "TurnId"],
        json!({
            "SessionId": text("The session."),
            "TurnId": text("The client's own name for the turn, new for every turn: it is also what makes sending it again safe."),
            "Instruction": text("Markdown."),
            "InputArtifacts": list_of("AgentInputArtifact"),
            "ClipboardImages": list_of("AgentClipboardImage"),
            "FileIds": {"type": "array", "items": {"type": "string"}, "description": "Files that were uploaded to `/v1/files`."},
            "RagScope": {"anyOf": [
                list_of("AgentRagCondition"),
                {"type": "object", "properties": {"Conditions": list_of("AgentRagCondition")}, "additionalProperties": false},
            ]},
            "WorkspaceId": text("A hint."),
            "Repo": text("A hint."),
            "Language": text("A hint."),
            "SolutionContextText": text("Kept with the session until another one comes."),
            "AgentContextId": text("A profile, for this turn in the place of the session's."),
            "ConversationContextId": text("Repeated in the answer."),
            "RoleId": text("A role of the agent; needs `AgentContextId`."),
            "Streaming": {"type": "boolean", "default": false, "description": "Whether the answer comes as events."},
        }),
    );
    turn["additionalProperties"] = json!(false);
    turn
}

fn continuation() -> Value {
    let mut continuation = object(
        "The results that a turn waits for: exactly those, in the order of the calls.",
        &["SessionId", "TurnId", "ToolResults"],
        json!({
            "SessionId": text("The session."),
            "TurnId": text("The turn that waits."),
            "ToolResults": list_of("AgentToolResult"),
        }),
    );
    continuation["additionalProperties"] = json!(false);
    continuation
}

fn tool_result() -> Value {
    object(
        "What came of a call: a result, or an error.",
        &["ToolCallId", "ExecutionMs"],
        json!({
            "ToolCallId": text("The call's `CallId`."),
            "ExecutionMs": {"type": "number", "minimum": 0},
            "ResultJson": {"description": "The result: a text of JSON, or any other value."},
            "ErrorMessage": text("What went wrong, in the place of a result."),
        }),
    )
}

fn artifact() -> Value {
    object(
        "A file with its contents.",
        &["RelativePath", "FileName", "Contents", "Origin"],
        json!({
            "RelativePath": text("Below the opened root; never absolute."),
            "FileName": text("Its name."),
            "Contents": text("Text, or base64 by `Encoding`."),
            "Origin": {"enum": ["ide", "user"]},
            "MimeType": text("What kind of file it is."),
            "Language": text("Its language."),
            "Encoding": {"enum": ["utf8", "base64"], "default": "utf8"},
        }),
    )
}

fn image() -> Value {
    object(
        "A picture with its bytes.",
        &["Id", "MimeType", "DataBase64"],
        json!({"Id": text("Unique in its request."), "MimeType": text("`image/…`"), "DataBase64": text("Its bytes.")}),
    )
}

fn condition() -> Value {
    object(
        "A condition on what is looked up; all of them hold at once.",
        &["Key", "Operator", "Values"],
        json!({
            "Key": text("`path`, `language`, `repo`, `collection`, or a key of the import."),
            "Operator": {"enum": ["==", "!=", "contains", "does_not_contain"]},
            "Values": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        }),
    )
}

const ENVELOPE: &[&str] = &[
    "Kind",
    "ConversationId",
    "TurnId",
    "AgentContextId",
    "ConversationContextId",
    "ResponseContinuationId",
    "Mode",
    "ModelId",
    "Text",
    "FinishReason",
    "Usage",
    "Sources",
    "FileBundle",
    "Warnings",
    "ErrorCode",
    "ErrorMessage",
    "RawResponseJson",
    "ToolCalls",
];

fn envelope() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    json!({
        "Kind": {
            "enum": ["ok", "tool-only", "error", "empty"],
            "description": "Text with or without calls, calls alone, a failure, or neither.",
        },
        "ConversationId": text("The session."),
        "TurnId": text_or_null("The turn."),
        "AgentContextId": text_or_null("The agent that answered."),
        "ConversationContextId": text_or_null("As the request had it."),
        "ResponseContinuationId": text_or_null("The response's id."),
        "Mode": text("The mode that the session was in."),
        "ModelId": text_or_null("The model that answered, as its server names it."),
        "Text": text_or_null("Everything that was said, with a blank line between its parts."),
        "FinishReason": text_or_null("`stop`, `tool_use`, `length`, `tool_iterations` (a bound of tool rounds or calls ended the turn), `content_filter`, `error`."),
        "Usage": object(
            "What it cost.",
            &["PromptTokens", "CompletionTokens", "TotalTokens"],
            json!({"PromptTokens": count(), "CompletionTokens": count(), "TotalTokens": count()}),
        ),
        "Sources": list_of("AgentSource"),
        "FileBundle": {"description": "Files that came of the turn.", "type": ["object", "null"]},
        "Warnings": {"type": "array", "items": {"type": "string"}},
        "ErrorCode": text_or_null("Set exactly when `Kind` is `error`."),
        "ErrorMessage": text_or_null("For a person."),
        "RawResponseJson": text_or_null("What the model's server sent last, byte for byte except for secrets of the installation; of a stream the final object. Null where nothing came, or where the tenant hides it."),
        "ToolCalls": list_of("AgentToolCall"),
    })
}

fn call() -> Value {
    object(
        "A call that the client has to run.",
        &["CallId", "Name", "ArgumentsJson"],
        json!({
            "CallId": text("What its result has to name."),
            "Name": text("The tool."),
            "ArgumentsJson": text_or_null("Exactly what the model sent."),
        }),
    )
}

fn server_call() -> Value {
    object(
        "A call of a tool that the server ran inside the turn.",
        &["CallId", "Name", "ArgumentsJson", "ResultJson", "ErrorMessage"],
        json!({
            "CallId": text("The model's id for the call."),
            "Name": text("The tool."),
            "ArgumentsJson": text("Exactly what the model sent."),
            "ResultJson": text_or_null("What came out."),
            "ErrorMessage": text_or_null("What went wrong."),
        }),
    )
}

fn source() -> Value {
    let line = || json!({"type": "integer", "minimum": 1});
    object(
        "A piece of the tenant's knowledge that the model was given.",
        &["Id", "Path", "StartLine", "EndLine", "Language"],
        json!({
            "Id": text("The piece."),
            "Path": text("The file."),
            "StartLine": line(),
            "EndLine": line(),
            "Language": text("Its language."),
        }),
    )
}

fn refusal() -> Value {
    let mut properties = envelope();
    properties["Kind"] = json!({"const": "error"});
    properties["Errors"] = json!({
        "type": "array",
        "items": object(
            "One fault.",
            &["Field", "Code", "Message"],
            json!({
                "Field": text("Where it is: `ToolResults[1].ToolCallId`."),
                "Code": text("Which mistake it is."),
                "Message": text("For a person."),
            }),
        ),
    });
    let required: Vec<&str> = ENVELOPE.iter().copied().chain(["Errors"]).collect();
    object("A request that was not taken: the envelope of a failure, with every fault.", &required, properties)
}

fn new_session() -> Value {
    let mut session = object(
        "What a session is to be.",
        &[],
        json!({
            "AgentContextId": text_or_null("The profile that answers; the tenant's usual assistant without one."),
            "Mode": text_or_null("The mode that it begins in; `general` without one."),
        }),
    );
    session["additionalProperties"] = json!(false);
    session
}

fn session() -> Value {
    let time = || json!({"type": "integer", "description": "Seconds since 1970."});
    object(
        "A session.",
        &["SessionId", "AgentContextId", "Mode", "Turns", "PendingTurnId", "CreatedAt", "UpdatedAt"],
        json!({
            "SessionId": text("Its id."),
            "AgentContextId": text_or_null("The profile that answers."),
            "Mode": text("The mode that it is in."),
            "Turns": {"type": "integer", "minimum": 0},
            "PendingTurnId": text_or_null("The turn that waits for results; told where one session is asked for."),
            "SolutionContextText": text_or_null("What the client has said about its solution."),
            "ModeHistory": list_of("AgentModeChange"),
            "CreatedAt": time(),
            "UpdatedAt": time(),
        }),
    )
}

fn mode_change() -> Value {
    object(
        "A change of a session's mode.",
        &["Previous", "Mode", "Reason", "TurnId", "At"],
        json!({
            "Previous": text("The mode before."),
            "Mode": text("The mode from then on."),
            "Reason": text("Why, in the model's words."),
            "TurnId": text("The turn in which it happened."),
            "At": {"type": "integer", "description": "Seconds since 1970."},
        }),
    )
}

fn turn() -> Value {
    object(
        "A turn.",
        &["TurnId", "Number", "Status", "Mode", "Steps", "CreatedAt"],
        json!({
            "TurnId": text("The client's name for it."),
            "Number": {"type": "integer", "minimum": 1},
            "Status": {"enum": ["running", "pending", "completed", "failed", "given_up"]},
            "Mode": text("The mode that it began in."),
            "Steps": {"type": "integer", "minimum": 1, "description": "How many submissions it took."},
            "CreatedAt": {"type": "integer", "description": "Seconds since 1970."},
            "ServerToolCalls": list_of("AgentServerToolCall"),
            "Result": {"anyOf": [reference("AgentExecuteResponse"), {"type": "null"}]},
        }),
    )
}

fn page(name: &str, of: &str) -> Value {
    let mut properties = json!({"HasMore": {"type": "boolean"}});
    properties[name] = list_of(of);
    object("A page.", &[name, "HasMore"], properties)
}
