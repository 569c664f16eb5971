//! A tool as an administrator writes it, read into one that can be kept.
//!
//! Shapes only: what settings and schemas may be is the toolbox's to say.

use std::time::Duration;

use amalgam_core::{
    BuiltinWords, Decider, Fault, OnError, Policy, Toolbox, duration_from_text,
    store::{BankKind, BankTool},
};
use amalgam_protocol::{Json, Raw};
use bytes::Bytes;
use serde_json::Value;

use super::Whose;
use crate::wires::admin::fields::{self, Fields};

/// What can be said about a tool. The last four are shown with one, so that what was read can be sent back.
const KNOWN: [&str; 16] = [
    "name",
    "description",
    "parameters",
    "kind",
    "settings",
    "guidance",
    "timeout",
    "on_error",
    "idempotent",
    "after_call_instruction",
    "requires_approval",
    "active",
    "object",
    "common",
    "created_at",
    "updated_at",
];

const LONGEST_NAME: usize = 64;
const LONGEST_DESCRIPTION: usize = 8_000;
const LONGEST_GUIDANCE: usize = 32_000;

/// A path of the bank has this name.
const RESERVED: &str = "usage";

/// Arguments of a tool that takes none.
const NO_PARAMETERS: &[u8] = br#"{"type":"object","properties":{},"additionalProperties":false}"#;

/// Reads a tool for one of the banks. What is not said is as it usually is; times are not set.
pub(super) fn read(body: &Bytes, name: Option<&str>, whose: Whose, toolbox: &dyn Toolbox) -> Result<BankTool, Fault> {
    let fields = Fields::parse(body, &KNOWN)?;
    let name = self::name(&fields, name)?;
    let common = whose == Whose::Common;
    if fields.boolean("common")?.is_some_and(|said| said != common) {
        return Err(fields::wrong("common", "this is the other bank; `common=true` in the query means the common one"));
    }
    let kind = fields.text("kind", 16)?.ok_or_else(|| fields::missing("kind"))?;
    let kind = BankKind::named(kind).ok_or_else(|| fields::wrong("kind", "`builtin`, `http`, `mcp` or `client`"))?;
    let settings = fields.object("settings")?.unwrap_or_else(|| Json::from(Raw::EMPTY_OBJECT));
    let own = match kind {
        BankKind::Builtin => Some(builtin(toolbox, &name, &settings)?),
        BankKind::Http | BankKind::Mcp | BankKind::Client => None,
    };
    let description = fields.prose("description", LONGEST_DESCRIPTION)?.map(str::to_owned);
    let guidance = fields.prose("guidance", LONGEST_GUIDANCE)?.map(str::to_owned);
    let parameters = fields.object("parameters")?;
    let (description, parameters, guidance) = match own {
        Some(own) => {
            (description.unwrap_or(own.description), parameters.unwrap_or(own.parameters), guidance.or(own.guidance))
        }
        None => (
            description.ok_or_else(|| fields::missing("description"))?,
            parameters.unwrap_or_else(no_parameters),
            guidance,
        ),
    };
    Ok(BankTool {
        name,
        common,
        description,
        parameters,
        kind,
        settings,
        guidance,
        policy: policy(&fields)?,
        active: fields.boolean("active")?.unwrap_or(true),
        created_at_ms: 0,
        updated_at_ms: 0,
    })
}

/// The name in the path and the one in the body are the same one.
fn name(fields: &Fields, in_path: Option<&str>) -> Result<String, Fault> {
    let said = fields.text("name", LONGEST_NAME)?;
    let name = match (in_path, said) {
        (Some(name), Some(said)) if name != said => {
            return Err(fields::wrong("name", "must be the name in the path"));
        }
        (Some(name), _) | (None, Some(name)) => name,
        (None, None) => return Err(fields::missing("name")),
    };
    match name.eq_ignore_ascii_case(RESERVED) {
        true => Err(fields::wrong("name", "no tool can have this name")),
        false => Ok(name.to_owned()),
    }
}

fn builtin(toolbox: &dyn Toolbox, name: &str, settings: &Json) -> Result<BuiltinWords, Fault> {
    let function = settings.raw().get_str("function");
    toolbox
        .builtin(function.as_deref().unwrap_or(name))
        .ok_or_else(|| fields::wrong("settings.function", "there is no built-in tool of this name"))
}

fn no_parameters() -> Json {
    Json::parse(&Bytes::from_static(NO_PARAMETERS)).expect("what stands here is JSON")
}

fn policy(fields: &Fields) -> Result<Policy, Fault> {
    let usual = Policy::default();
    let named = |name: &str| OnError::named(name).ok_or_else(|| fields::wrong("on_error", "`continue` or `fail_turn`"));
    Ok(Policy {
        timeout: timeout(fields)?.unwrap_or(usual.timeout),
        idempotent: fields.boolean("idempotent")?.unwrap_or(usual.idempotent),
        on_error: fields.text("on_error", 16)?.map(named).transpose()?.unwrap_or(usual.on_error),
        after_call_instruction: fields.prose("after_call_instruction", LONGEST_DESCRIPTION)?.map(str::to_owned),
        requires_approval: decider(fields)?,
    })
}

/// Seconds as a number, or a text with its unit.
fn timeout(fields: &Fields) -> Result<Option<Duration>, Fault> {
    let read = match fields.get("timeout") {
        None => return Ok(None),
        Some(Value::String(text)) => duration_from_text(text),
        Some(Value::Number(number)) => number.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        Some(_) => return Err(fields::mistyped("timeout", "a number or a string")),
    };
    // Milliseconds are all that is kept.
    let milliseconds = read.and_then(|timeout| u64::try_from(timeout.as_millis()).ok());
    let wrong = || fields::wrong("timeout", "must be a number of seconds or a text such as `30s` or `500ms`");
    milliseconds.map(|milliseconds| Some(Duration::from_millis(milliseconds))).ok_or_else(wrong)
}

fn decider(fields: &Fields) -> Result<Option<Decider>, Fault> {
    let wrong = || fields::wrong("requires_approval", "`false`, `true`, `caller` or `admin`");
    match fields.get("requires_approval") {
        None | Some(Value::Bool(false)) => Ok(None),
        Some(Value::Bool(true)) => Ok(Some(Decider::Caller)),
        Some(Value::String(name)) => Decider::named(name).map(Some).ok_or_else(wrong),
        Some(_) => Err(fields::mistyped("requires_approval", "a boolean or a string")),
    }
}
