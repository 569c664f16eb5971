//! The body of `PUT /admin/tools/{name}`.
//!
//! Checks the form only; the toolbox validates settings and schemas.

use std::{borrow::Cow, time::Duration};

use amalgam_core::{
    BuiltinDescription, Decider, Fault, OnError, Policy, ToolProvider, duration_from_text,
    store::{BankKind, BankTool},
};
use amalgam_protocol::{Json, Raw};
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::BankScope;
use crate::{
    fields::{Ignored, Line, Object, Prose, Verbatim, Vocabulary as _, Word, mistyped},
    request,
};

/// A tool to store. Null is the same as absent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what is shown of a tool can be sent back: some fields are accepted and not used")]
pub(crate) struct PutTool {
    /// If present, it must equal the name in the path.
    name: Option<Line<64>>,
    /// The description sent to the model. Required, except for built-in tools, which have their own.
    description: Option<Prose<8_000>>,
    /// The JSON Schema of the arguments. By default the tool takes none, or those of the built-in tool.
    parameters: Option<Object>,
    /// A function of the server, a request to an HTTP service, a tool of an MCP server, or a tool that the client runs.
    kind: Word<BankKind>,
    /// `builtin`: `function`. `http`: `method`, `url`, `headers`, `body`, `result_path`. `mcp`: `server`, `tool`,
    /// `authorization`, `headers`. A header written as `{"secret": …}` is stored encrypted and never returned.
    settings: Option<Object>,
    /// When and how to use the tool; added to the prompt.
    guidance: Option<Prose<32_000>>,
    /// Seconds, or a string such as `30s` or `500ms`.
    #[schemars(extend("type" = ["number", "string", "null"], "default" = 30))]
    timeout: Option<ToolTimeout>,
    /// Whether the model receives the error and continues, or the turn fails.
    on_error: Option<Word<OnError>>,
    /// Whether running the tool twice has the same effect as running it once.
    #[schemars(extend("default" = false))]
    idempotent: Option<bool>,
    /// Instruction sent to the model after a successful call.
    after_call_instruction: Option<Prose<8_000>>,
    /// Who must approve a call; `true` is `caller`.
    #[schemars(extend("enum" = [false, true, "caller", "admin", null], "default" = false))]
    requires_approval: Option<RequiresApproval>,
    /// Whether the tool can be used.
    #[schemars(extend("default" = true))]
    active: Option<bool>,
    object: Option<Ignored>,
    /// If present, it must match the bank that the request addresses.
    common: Option<bool>,
    created_at: Option<Ignored>,
    updated_at: Option<Ignored>,
}

/// Seconds as a number, or a string with a unit, in whole milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct ToolTimeout(pub Duration);

/// `false`, or who must approve. `true` is the caller.
#[derive(Debug, Clone, Copy)]
pub struct RequiresApproval(pub Option<Decider>);

/// A route of the tool bank has this name.
const RESERVED: &str = "usage";

/// Arguments of a tool that takes none.
const NO_PARAMETERS: &[u8] = br#"{"type":"object","properties":{},"additionalProperties":false}"#;

/// Reads a tool. Absent fields get their defaults; times are not set.
pub(super) fn read(
    body: &Bytes,
    name: Option<&str>,
    bank_scope: BankScope,
    toolbox: &dyn ToolProvider,
) -> Result<BankTool, Fault> {
    let put: PutTool = request::parse(body)?;
    let name = self::name(put.name, name)?;
    let common = bank_scope == BankScope::Common;
    if put.common.is_some_and(|in_body| in_body != common) {
        return Err(request::wrong(
            "common",
            "this is the other bank; `common=true` in the query means the common one",
        ));
    }
    let Word(kind) = put.kind;
    let settings = put.settings.map_or_else(|| Json::from(Raw::EMPTY_OBJECT), Object::into_json);
    let own = match kind {
        BankKind::Builtin => Some(builtin(toolbox, &name, &settings)?),
        BankKind::Http | BankKind::Mcp | BankKind::Client => None,
    };
    let (description, guidance) = (put.description.map(|text| text.0), put.guidance.map(|text| text.0));
    let parameters = put.parameters.map(Object::into_json);
    let (description, parameters, guidance) = match own {
        Some(own) => {
            (description.unwrap_or(own.description), parameters.unwrap_or(own.parameters), guidance.or(own.guidance))
        }
        None => (
            description.ok_or_else(|| request::missing("description"))?,
            parameters.unwrap_or_else(no_parameters),
            guidance,
        ),
    };
    let usual = Policy::default();
    let policy = Policy {
        timeout: put.timeout.map_or(usual.timeout, |timeout| timeout.0),
        idempotent: put.idempotent.unwrap_or(usual.idempotent),
        on_error: put.on_error.map_or(usual.on_error, |on_error| on_error.0),
        after_call_instruction: put.after_call_instruction.map(|text| text.0),
        requires_approval: put.requires_approval.and_then(|decider| decider.0),
    };
    Ok(BankTool {
        name,
        common,
        description,
        parameters,
        kind,
        settings,
        guidance,
        policy,
        active: put.active.unwrap_or(true),
        created_at_ms: 0,
        updated_at_ms: 0,
    })
}

/// The name; if path and body both have one, they must be equal.
fn name(in_body: Option<Line<64>>, in_path: Option<&str>) -> Result<String, Fault> {
    let name = match (in_path, in_body) {
        (Some(name), Some(Line(in_body))) if name != in_body => {
            return Err(request::wrong("name", "must be the name in the path"));
        }
        (Some(name), _) => name.to_owned(),
        (None, Some(Line(name))) => name,
        (None, None) => return Err(request::missing("name")),
    };
    match name.eq_ignore_ascii_case(RESERVED) {
        true => Err(request::wrong("name", "no tool can have this name")),
        false => Ok(name),
    }
}

fn builtin(toolbox: &dyn ToolProvider, name: &str, settings: &Json) -> Result<BuiltinDescription, Fault> {
    let function = settings.raw().get_str("function");
    toolbox
        .builtin(function.as_deref().unwrap_or(name))
        .ok_or_else(|| request::wrong("settings.function", "there is no built-in tool of this name"))
}

fn no_parameters() -> Json {
    Json::parse(&Bytes::from_static(NO_PARAMETERS)).expect("the constant is JSON")
}

impl<'de> Deserialize<'de> for ToolTimeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Verbatim(value) = Verbatim::deserialize(deserializer)?;
        let timeout = match (value.raw().as_str(), value.raw().as_f64()) {
            (Some(text), _) => duration_from_text(&text.decode()),
            (None, Some(seconds)) => Duration::try_from_secs_f64(seconds).ok(),
            (None, None) => return Err(mistyped("a number or a string")),
        };
        let milliseconds = timeout.and_then(|timeout| u64::try_from(timeout.as_millis()).ok());
        let wrong = || D::Error::custom("must be a number of seconds or a text such as `30s` or `500ms`");
        milliseconds.map(|milliseconds| Self(Duration::from_millis(milliseconds))).ok_or_else(wrong)
    }
}

impl JsonSchema for ToolTimeout {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ToolTimeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number"})
    }
}

impl<'de> Deserialize<'de> for RequiresApproval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Verbatim(value) = Verbatim::deserialize(deserializer)?;
        match (value.raw().as_bool(), value.raw().as_str()) {
            (Some(required), _) => Ok(Self(required.then_some(Decider::Caller))),
            (None, Some(word)) => {
                let word = word.decode();
                let unknown = || D::Error::unknown_variant(&word, &["false", "true", "caller", "admin"]);
                Decider::of_word(&word).map(|decider| Self(Some(decider))).ok_or_else(unknown)
            }
            (None, None) => Err(mistyped("a boolean or a string")),
        }
    }
}

impl JsonSchema for RequiresApproval {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RequiresApproval".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"enum": [false, "caller", "admin"]})
    }
}
