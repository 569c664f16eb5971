//! Reads the settings of each kind of tool. An unknown key is refused with its path.

use std::borrow::Cow;

use amalgam_core::{BankFault, store::BankKind};
use amalgam_protocol::{Json, Raw, Shape};
use secrecy::SecretString;

use super::secret::{self, SecretInput};
use super::wrong;
use crate::{
    headers::{HeaderText, holds_a_credential},
    http::HttpSettings,
    text,
};

/// The settings of a tool, with its secrets opened.
#[derive(Debug)]
pub(super) enum Settings {
    Builtin {
        /// The function's name; `None` for the tool's own name.
        function: Option<String>,
    },
    Http(HttpSettings),
    Mcp(McpForm),
    Client,
}

/// A tool of an MCP server.
#[derive(Debug)]
pub(super) struct McpForm {
    pub(super) server: ServerLocation,
    /// The tool's name at the server; `None` for its own name.
    pub(super) tool: Option<String>,
}

/// The location of an MCP server.
#[derive(Debug)]
pub(super) enum ServerLocation {
    /// The configured server of this name.
    Operators(String),
    /// A server of the tenant.
    Url { url: String, authorization: Option<SecretString>, headers: Vec<(String, HeaderText)> },
}

/// Opens a sealed text; `None` if it cannot be opened.
pub(super) type Open<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// Reads the settings of a tool of this kind.
pub(super) fn read(kind: BankKind, settings: Raw<'_>, open: Open<'_>) -> Result<Settings, BankFault> {
    let known: &[&str] = match kind {
        BankKind::Builtin => &["function"],
        BankKind::Http => &["method", "url", "headers", "body", "result_path"],
        BankKind::Mcp => &["server", "tool", "authorization", "headers"],
        BankKind::Client => &[],
    };
    let form = Form::read(kind, settings, known)?;
    Ok(match kind {
        BankKind::Builtin => Settings::Builtin { function: form.text("function")? },
        BankKind::Http => Settings::Http(HttpSettings {
            method: form.needed("method")?,
            url: form.needed("url")?,
            headers: form.headers(open)?,
            body: form.get("body").map(Json::from),
            result_path: form.text("result_path")?,
        }),
        BankKind::Mcp => Settings::Mcp(McpForm { server: server(&form, open)?, tool: form.text("tool")? }),
        BankKind::Client => Settings::Client,
    })
}

fn server(form: &Form<'_>, open: Open<'_>) -> Result<ServerLocation, BankFault> {
    let server = form.needed("server")?;
    if server.contains("://") {
        let authorization = form.get("authorization").map(|value| opened(value, "settings.authorization", open));
        let authorization = authorization.transpose()?.map(|text| text.expose().into());
        return Ok(ServerLocation::Url { url: server, authorization, headers: form.headers(open)? });
    }
    // A configured server has its own credentials.
    match ["authorization", "headers"].into_iter().find(|key| form.get(key).is_some()) {
        Some(key) => Err(wrong(format!("settings.{key}"), "a server of the operator's has its own")),
        None => Ok(ServerLocation::Operators(server)),
    }
}

/// An object whose keys are all known and unique. Null counts as absent.
struct Form<'a>(Vec<(Cow<'a, str>, Raw<'a>)>);

impl<'a> Form<'a> {
    fn read(kind: BankKind, settings: Raw<'a>, known: &[&str]) -> Result<Self, BankFault> {
        if settings.shape() != Shape::Object {
            return Err(wrong("settings", format!("an object is expected, not {}", settings.shape().name())));
        }
        let mut fields: Vec<(Cow<'a, str>, Raw<'a>)> = Vec::new();
        for (key, value) in settings.fields() {
            let key = key.decode();
            let path = || format!("settings.{}", text::printable(&key, 100));
            if !known.contains(&&*key) {
                let reason = match known {
                    [] => format!("a tool of kind {} has no settings", kind.name()),
                    known => format!("a tool of kind {} has only {}", kind.name(), known.join(", ")),
                };
                return Err(wrong(path(), reason));
            }
            if fields.iter().any(|(other, _)| *other == key) {
                return Err(wrong(path(), "it is there twice"));
            }
            fields.push((key, value));
        }
        Ok(Self(fields))
    }

    fn get(&self, key: &str) -> Option<Raw<'a>> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| *value).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Result<Option<String>, BankFault> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_str().map(|text| text.decode()).filter(|text| !text.is_empty()) {
            Some(text) => Ok(Some(text.into_owned())),
            None => Err(wrong(format!("settings.{key}"), "a text is expected")),
        }
    }

    fn needed(&self, key: &str) -> Result<String, BankFault> {
        self.text(key)?.ok_or_else(|| wrong(format!("settings.{key}"), "it is missing"))
    }

    fn headers(&self, open: Open<'_>) -> Result<Vec<(String, HeaderText)>, BankFault> {
        let Some(headers) = self.get("headers") else { return Ok(Vec::new()) };
        if headers.shape() != Shape::Object {
            return Err(wrong("settings.headers", format!("an object is expected, not {}", headers.shape().name())));
        }
        let read = |(name, value): (amalgam_protocol::JsonStr<'_>, Raw<'_>)| {
            let name = name.decode().into_owned();
            let path = format!("settings.headers.{}", text::printable(&name, 100));
            let value = match opened(value, &path, open)? {
                HeaderText::Plain(text) if holds_a_credential(&name) => HeaderText::Secret(text.into()),
                value => value,
            };
            Ok((name, value))
        };
        headers.fields().map(read).collect()
    }
}

fn opened(value: Raw<'_>, path: &str, open: Open<'_>) -> Result<HeaderText, BankFault> {
    Ok(match secret::read(value, path)? {
        SecretInput::Text(text) => HeaderText::Plain(text.into_owned()),
        SecretInput::Secret(text) => HeaderText::Secret(text.into_owned().into()),
        SecretInput::Unchanged => return Err(wrong(path, "there is no secret that could be kept")),
        SecretInput::Sealed(sealed) => {
            let plain = open(&sealed).and_then(|plain| String::from_utf8(plain).ok());
            // The master key has changed, or the text was copied from elsewhere.
            let plain = plain.ok_or_else(|| wrong(path, "the secret cannot be opened: give it again"))?;
            HeaderText::Secret(plain.into())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(kind: BankKind, settings: &str) -> Result<Settings, (String, String)> {
        let open = |sealed: &str| (sealed == "ams2.good").then(|| b"opened".to_vec());
        read(kind, Raw::parse(settings.as_bytes()).unwrap(), &open).map_err(|fault| (fault.field, fault.reason))
    }

    #[test]
    fn settings_are_read_with_their_secrets_opened() {
        let settings = r#"{"method": "GET", "url": "https://a.example", "body": null, "result_path": "data",
            "headers": {"x-plain": "1", "X-Api-Key": "hush", "x-other": {"sealed": "ams2.good"}}}"#;
        let Ok(Settings::Http(http)) = parsed(BankKind::Http, settings) else { panic!("not read") };
        let headers: Vec<_> = http.headers.iter().map(|(name, text)| (name.as_str(), text.expose())).collect();
        assert_eq!(headers, [("x-plain", "1"), ("X-Api-Key", "hush"), ("x-other", "opened")]);
        assert!(!format!("{http:?}").contains("hush"), "{http:?}");
        assert!(matches!(http.headers[0].1, HeaderText::Plain(_)));
        assert!(http.body.is_none());

        let Ok(Settings::Mcp(mcp)) = parsed(BankKind::Mcp, r#"{"server": "files", "tool": "read"}"#) else {
            panic!("not read")
        };
        assert_eq!(mcp.tool.as_deref(), Some("read"));
        assert!(matches!(mcp.server, ServerLocation::Operators(name) if name == "files"));
        assert!(matches!(parsed(BankKind::Builtin, "{}"), Ok(Settings::Builtin { function: None })));
        assert!(matches!(parsed(BankKind::Client, "{}"), Ok(Settings::Client)));
    }

    #[test]
    fn what_a_kind_does_not_know_is_refused_by_its_path() {
        let refused = |kind, settings| parsed(kind, settings).unwrap_err();
        let only = "a tool of kind http has only method, url, headers, body, result_path";
        assert_eq!(
            refused(BankKind::Http, r#"{"method": "GET", "urll": "https://a.example"}"#),
            ("settings.urll".into(), only.into())
        );
        for (kind, settings, field) in [
            (BankKind::Client, r#"{"url": "https://a.example"}"#, "settings.url"),
            (BankKind::Builtin, r#"{"function": 1}"#, "settings.function"),
            (BankKind::Http, "[]", "settings"),
            (BankKind::Http, r#"{"url": "https://a.example"}"#, "settings.method"),
            (BankKind::Http, r#"{"method": "GET", "method": "PUT", "url": "https://a.example"}"#, "settings.method"),
            (BankKind::Http, r#"{"method": "GET", "url": "https://a.example", "headers": []}"#, "settings.headers"),
            (
                BankKind::Http,
                r#"{"method": "GET", "url": "https://a.example", "headers": {"x": 1}}"#,
                "settings.headers.x",
            ),
            (
                BankKind::Http,
                r#"{"method": "GET", "url": "https://a.example", "headers": {"x": {"sealed": "ams2.bad"}}}"#,
                "settings.headers.x",
            ),
            (
                BankKind::Http,
                r#"{"method": "GET", "url": "https://a.example", "headers": {"x": {"secret": "***"}}}"#,
                "settings.headers.x",
            ),
            (BankKind::Mcp, "{}", "settings.server"),
            (BankKind::Mcp, r#"{"server": "files", "authorization": "x"}"#, "settings.authorization"),
            (BankKind::Mcp, r#"{"server": "files", "headers": {}}"#, "settings.headers"),
        ] {
            assert_eq!(refused(kind, settings).0, field, "{settings}");
        }
    }
}
