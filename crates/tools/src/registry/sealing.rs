//! Secrets in the settings of tools: sealed before they are stored, never returned.
//!
//! A secret belongs to the address that it is sent to. A caller that changes the address has to send the secret again:
//! otherwise it could point a tool at its own host to read a secret that the API never returns.

use amalgam_core::{
    BankFault, Scope, Seal,
    store::{BankKind, BankTool},
};
use amalgam_protocol::{Json, Raw, Shape, Writer};

use super::secret::{self, Written};
use super::wrong;
use crate::headers::holds_a_credential;

/// What the secrets of a tool are bound to: its bank, and being a tool's, so that nothing else that was sealed for the
/// same tenant can be passed off as one.
pub(super) fn context(scope: &Scope, tool: &BankTool) -> String {
    match tool.common {
        true => "tenant:0 tool".to_owned(),
        false => format!("{} tool", scope.seal_context()),
    }
}

/// The settings as they are kept. A secret that stays what it was is taken from the tool that was there before.
pub(super) fn seal(
    seal: &dyn Seal,
    context: &str,
    tool: &BankTool,
    before: Option<&BankTool>,
) -> Result<Json, BankFault> {
    rewritten(tool, |place, value| match secret::read(value, &place.path)? {
        Written::Text(text) if text == secret::HIDDEN => kept(place, tool, before),
        Written::Text(text) | Written::Secret(text) => Ok(secret::sealed(&seal.seal(context, text.as_bytes()))),
        Written::Kept => kept(place, tool, before),
        // Sealed texts come from the bank alone: a sealed text in a request may be another tenant's secret.
        Written::Sealed(_) => Err(wrong(&place.path, "a sealed secret cannot be handed in")),
    })
}

/// The settings with every secret sealed anew, by the newest key; nothing when one of them cannot be opened.
pub(super) fn anew(seal: &dyn Seal, context: &str, tool: &BankTool) -> Option<Json> {
    let resealed = rewritten(tool, |place, value| match secret::read(value, &place.path)? {
        Written::Sealed(text) => match seal.open(context, &text) {
            Some(plain) => Ok(secret::sealed(&seal.seal(context, &plain))),
            None => Err(wrong(&place.path, "it cannot be opened")),
        },
        Written::Text(_) | Written::Secret(_) | Written::Kept => Ok(Json::from(value)),
    });
    resealed.ok()
}

/// The settings as they are shown.
pub(super) fn show(tool: &BankTool) -> Json {
    // What is in the bank was sealed on its way there; should it not have the right shape, nothing is shown.
    rewritten(tool, |_, _| Ok(secret::hidden())).unwrap_or_else(|_| Json::from(Raw::EMPTY_OBJECT))
}

/// Where a secret stands.
struct Place<'a> {
    /// `settings.headers.x-api-key`
    path: String,
    /// The name of the header; none for the credential of an MCP server.
    header: Option<&'a str>,
}

fn kept(place: &Place<'_>, tool: &BankTool, before: Option<&BankTool>) -> Result<Json, BankFault> {
    let before = before.filter(|before| before.kind == tool.kind && before.common == tool.common);
    let missing = || wrong(&place.path, "there is no secret that could be kept");
    let before = before.ok_or_else(missing)?;
    let stored = before.settings.raw();
    let stored = match place.header {
        None => stored.get("authorization"),
        Some(name) => {
            let mut headers = stored.get("headers").into_iter().flat_map(Raw::fields);
            headers.find(|(known, _)| known.decode().eq_ignore_ascii_case(name)).map(|(_, value)| value)
        }
    };
    let stored =
        stored.filter(|value| matches!(secret::read(*value, ""), Ok(Written::Sealed(_)))).ok_or_else(missing)?;
    match destination(tool) == destination(before) {
        true => Ok(Json::from(stored)),
        false => Err(wrong(&place.path, "the tool goes to another host now: give the secret again")),
    }
}

/// Where the secrets of a tool are sent: scheme, host and port, or the name of an MCP server.
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

/// The settings with every value that is or may be a secret replaced.
fn rewritten(
    tool: &BankTool,
    mut replace: impl FnMut(&Place<'_>, Raw<'_>) -> Result<Json, BankFault>,
) -> Result<Json, BankFault> {
    let has_headers = matches!(tool.kind, BankKind::Http | BankKind::Mcp);
    mapped(tool.settings.raw(), "settings", |key, value| match key {
        "headers" if has_headers => mapped(value, "settings.headers", |name, value| {
            if value.as_str().is_some() && !holds_a_credential(name) {
                return Ok(Json::from(value));
            }
            replace(&Place { path: format!("settings.headers.{name}"), header: Some(name) }, value)
        }),
        "authorization" if tool.kind == BankKind::Mcp => {
            replace(&Place { path: "settings.authorization".to_owned(), header: None }, value)
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
