//! Secrets in the settings of tools: sealed before they are stored, never returned.
//!
//! A secret belongs to the address that it is sent to. A caller that changes the address must send the secret again:
//! otherwise it could point a tool at its own host to read a secret that the API never returns.

use amalgam_core::{
    BankFault, Scope, Seal,
    store::{BankKind, BankTool},
};
use amalgam_protocol::{Json, Raw, Shape, Writer};

use super::secret::{self, SecretInput};
use super::wrong;
use crate::headers::holds_a_credential;

/// The context that the secrets of a tool are sealed for: its bank and its purpose, so that no other sealed value of
/// the tenant can be used as one.
pub(super) fn context(scope: &Scope, tool: &BankTool) -> String {
    match tool.common {
        true => "tenant:0 tool".to_owned(),
        false => format!("{} tool", scope.seal_context()),
    }
}

/// The settings to store. An unchanged secret is taken from the stored tool.
pub(super) fn seal(
    seal: &dyn Seal,
    context: &str,
    tool: &BankTool,
    before: Option<&BankTool>,
) -> Result<Json, BankFault> {
    rewritten(tool, |position, value| match secret::read(value, &position.path)? {
        SecretInput::Text(text) if text == secret::HIDDEN => stored_secret(position, tool, before),
        SecretInput::Text(text) | SecretInput::Secret(text) => Ok(secret::sealed(&seal.seal(context, text.as_bytes()))),
        SecretInput::Unchanged => stored_secret(position, tool, before),
        // Only the bank contains sealed texts: one in a request may be another tenant's secret.
        SecretInput::Sealed(_) => Err(wrong(&position.path, "a sealed secret cannot be handed in")),
    })
}

/// The settings with every secret resealed with the newest key; `None` if one of them cannot be opened.
pub(super) fn reseal(seal: &dyn Seal, context: &str, tool: &BankTool) -> Option<Json> {
    let resealed = rewritten(tool, |position, value| match secret::read(value, &position.path)? {
        SecretInput::Sealed(text) => match seal.open(context, &text) {
            Some(plain) => Ok(secret::sealed(&seal.seal(context, &plain))),
            None => Err(wrong(&position.path, "it cannot be opened")),
        },
        SecretInput::Text(_) | SecretInput::Secret(_) | SecretInput::Unchanged => Ok(Json::from(value)),
    });
    resealed.ok()
}

/// The settings as the API returns them.
pub(super) fn show(tool: &BankTool) -> Json {
    // Stored secrets are always sealed; if the form is unexpected, nothing is shown.
    rewritten(tool, |_, _| Ok(secret::hidden())).unwrap_or_else(|_| Json::from(Raw::EMPTY_OBJECT))
}

/// The position of a secret.
struct SecretPosition<'a> {
    /// `settings.headers.x-api-key`
    path: String,
    /// The header's name; `None` for the credential of an MCP server.
    header: Option<&'a str>,
}

fn stored_secret(position: &SecretPosition<'_>, tool: &BankTool, before: Option<&BankTool>) -> Result<Json, BankFault> {
    let before = before.filter(|before| before.kind == tool.kind && before.common == tool.common);
    let missing = || wrong(&position.path, "there is no secret that could be kept");
    let before = before.ok_or_else(missing)?;
    let stored = before.settings.raw();
    let stored = match position.header {
        None => stored.get("authorization"),
        Some(name) => {
            let mut headers = stored.get("headers").into_iter().flat_map(Raw::fields);
            headers.find(|(known, _)| known.decode().eq_ignore_ascii_case(name)).map(|(_, value)| value)
        }
    };
    let stored =
        stored.filter(|value| matches!(secret::read(*value, ""), Ok(SecretInput::Sealed(_)))).ok_or_else(missing)?;
    match destination(tool) == destination(before) {
        true => Ok(Json::from(stored)),
        false => Err(wrong(&position.path, "the tool goes to another host now: give the secret again")),
    }
}

/// The destination of a tool's secrets: scheme, host and port, or the name of an MCP server.
fn destination(tool: &BankTool) -> Option<String> {
    let key = match tool.kind {
        BankKind::Http => "url",
        BankKind::Mcp => "server",
        BankKind::Builtin | BankKind::Client => return None,
    };
    let written = tool.settings.raw().get_str(key)?;
    let Some((scheme, rest)) = written.split_once("://") else { return Some(written.into_owned()) };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    Some(format!("{scheme}://{authority}").to_ascii_lowercase())
}

/// The settings with every possible secret replaced.
fn rewritten(
    tool: &BankTool,
    mut replace: impl FnMut(&SecretPosition<'_>, Raw<'_>) -> Result<Json, BankFault>,
) -> Result<Json, BankFault> {
    let has_headers = matches!(tool.kind, BankKind::Http | BankKind::Mcp);
    mapped(tool.settings.raw(), "settings", |key, value| match key {
        "headers" if has_headers => mapped(value, "settings.headers", |name, value| {
            if value.as_str().is_some() && !holds_a_credential(name) {
                return Ok(Json::from(value));
            }
            replace(&SecretPosition { path: format!("settings.headers.{name}"), header: Some(name) }, value)
        }),
        "authorization" if tool.kind == BankKind::Mcp => {
            replace(&SecretPosition { path: "settings.authorization".to_owned(), header: None }, value)
        }
        _ => Ok(Json::from(value)),
    })
}

/// An object with its values replaced.
fn mapped(
    whole: Raw<'_>,
    path: &str,
    mut each: impl FnMut(&str, Raw<'_>) -> Result<Json, BankFault>,
) -> Result<Json, BankFault> {
    if whole.shape() != Shape::Object {
        return Err(wrong(path, format!("an object is expected, not {}", whole.shape().name())));
    }
    let mut fields = Vec::new();
    for (key, value) in whole.fields() {
        let key = key.decode();
        let value = each(&key, value)?;
        fields.push((key, value));
    }
    let mut writer = Writer::default();
    writer.object(|writer| {
        for (key, value) in &fields {
            writer.key_text(key).raw(value.raw());
        }
    });
    Ok(Json::from_writer(writer))
}

#[cfg(test)]
#[path = "sealing_tests.rs"]
mod tests;
