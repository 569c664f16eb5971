//! Browser tokens: what a server asks for one, and what a token says. Sealing and checking are elsewhere.
//!
//! A browser holds a token instead of a key. It is for one user, for some agents, and for pages of one origin.

use amalgam_core::{ClientTerms, hex};
use amalgam_protocol::{Raw, Shape, Writer};

use crate::request::{AGENT_CHARS, BLANK, FieldFaults, NO_FIELD, NO_STRING, NULL, REQUIRED, text_faults, type_name};

/// The shortest and the longest life of a token, in seconds.
const MIN_SECONDS: u64 = 60;
const MAX_SECONDS: u64 = 86_400;
const DEFAULT_SECONDS: u64 = 3_600;

/// The largest budget and the usual one, in messages on a day.
const MAX_MESSAGES: u64 = 100_000;
const DEFAULT_MESSAGES: u64 = 100;

const MAX_AGENTS: usize = 20;
const ORIGIN_CHARS: usize = 300;

const FIELDS: [&str; 5] = ["user", "agents", "origin", "expires_in", "messages_per_day"];

/// A valid request for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSecretRequest {
    /// The user, whether or not it is a possible one.
    pub user: String,
    /// The origin of the pages, in lower case.
    pub origin: String,
    /// The life of the token, in seconds.
    pub expires_in: u64,
    /// The agents and the budget.
    pub terms: ClientTerms,
}

impl ClientSecretRequest {
    /// Reads a request. An unknown field is a fault: a misspelt limit would silently not apply.
    pub fn read(body: Raw<'_>) -> Result<Self, FieldFaults> {
        if body.shape() != Shape::Object {
            let fault = format!("Invalid data. Expected a dictionary, but got {}.", type_name(body));
            return Err(FieldFaults::of(NO_FIELD, fault));
        }
        let mut faults = FieldFaults::default();
        let mut unknown: Vec<String> = body.fields().map(|(key, _)| key.decode().into_owned()).collect();
        unknown.retain(|key| !FIELDS.contains(&key.as_str()));
        if !unknown.is_empty() {
            // Shortened: an answer does not repeat what it cannot bound.
            let names: String = unknown.join(", ").chars().take(200).collect();
            faults.unwrap_or_record::<()>(NO_FIELD, Err(vec![format!("Unknown fields: {names}.")]));
        }
        let user = faults.unwrap_or_record("user", text(body.get("user"), 256));
        let agents = faults.unwrap_or_record("agents", read_agents(body.get("agents")));
        let origin = faults.unwrap_or_record("origin", read_origin(body.get("origin")));
        let range = (MIN_SECONDS, MAX_SECONDS, DEFAULT_SECONDS);
        let expires_in = faults.unwrap_or_record("expires_in", number(body.get("expires_in"), range));
        let range = (1, MAX_MESSAGES, DEFAULT_MESSAGES);
        let messages_per_day = faults.unwrap_or_record("messages_per_day", number(body.get("messages_per_day"), range));
        match (user, agents, origin, expires_in, messages_per_day) {
            (Some(user), Some(agents), Some(origin), Some(expires_in), Some(messages_per_day))
                if unknown.is_empty() =>
            {
                Ok(Self { user, origin, expires_in, terms: ClientTerms { agents, messages_per_day } })
            }
            _ => Err(faults),
        }
    }
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSecret {
    /// The hash of the key that issued it; the token ends with that key.
    pub key_hash: [u8; 32],
    /// The user.
    pub user: String,
    /// The origin of the pages.
    pub origin: String,
    /// Milliseconds since 1970.
    pub expires_at_ms: u64,
    /// The agents and the budget.
    pub terms: ClientTerms,
}

impl ClientSecret {
    /// The token as bytes, to be sealed.
    pub fn write(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.object(|writer| {
            writer.key("key").string(&hex(&self.key_hash));
            writer.key("user").string(&self.user);
            writer.key("origin").string(&self.origin);
            writer.key("expires_at_ms").number(self.expires_at_ms);
            writer.key("messages").number(self.terms.messages_per_day);
            writer.key("agents").array(|writer| self.terms.agents.iter().for_each(|agent| writer.string(agent)));
        });
        writer.into_bytes()
    }

    /// Reads what [`ClientSecret::write`] has written.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let raw = Raw::parse(bytes).ok()?;
        let text = |name: &str| raw.get_str(name).map(|text| text.into_owned());
        let number = |name: &str| raw.get(name)?.text().parse().ok();
        let digits = text("key")?;
        let mut key_hash = [0; 32];
        for (index, byte) in key_hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        let agents = raw.get("agents")?.elements().map(|agent| Some(agent.as_str()?.decode().into_owned()));
        Some(Self {
            key_hash,
            user: text("user")?,
            origin: text("origin")?,
            expires_at_ms: number("expires_at_ms")?,
            terms: ClientTerms { agents: agents.collect::<Option<_>>()?, messages_per_day: number("messages")? },
        })
    }
}

fn one<T>(fault: &str) -> Result<T, Vec<String>> {
    Err(vec![fault.to_owned()])
}

fn text(value: Option<Raw<'_>>, most: u64) -> Result<String, Vec<String>> {
    let Some(value) = value else { return one(REQUIRED) };
    if value.is_null() {
        return one(NULL);
    }
    let Some(text) = value.as_str() else { return one(NO_STRING) };
    let text = text.decode().trim().to_owned();
    if text.is_empty() {
        return one(BLANK);
    }
    let faults = text_faults(&text, most);
    if faults.is_empty() { Ok(text) } else { Err(faults) }
}

fn read_agents(value: Option<Raw<'_>>) -> Result<Vec<String>, Vec<String>> {
    let Some(value) = value else { return one(REQUIRED) };
    if value.shape() != Shape::Array {
        return Err(vec![format!("Expected a list of items but got type \"{}\".", type_name(value))]);
    }
    let agents: Vec<String> = value
        .elements()
        .take(MAX_AGENTS + 1)
        .map(|agent| text(Some(agent), AGENT_CHARS as u64))
        .collect::<Result<_, _>>()?;
    match agents.len() {
        0 => one("This list may not be empty."),
        count if count > MAX_AGENTS => Err(vec![format!("Ensure this field has no more than {MAX_AGENTS} elements.")]),
        _ => Ok(agents),
    }
}

/// Scheme, host and perhaps a port, as browsers write an origin.
fn read_origin(value: Option<Raw<'_>>) -> Result<String, Vec<String>> {
    let origin = text(value, ORIGIN_CHARS as u64)?.to_ascii_lowercase();
    let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    let is_origin = authority.is_some_and(|authority| {
        let host_bytes = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
        !authority.is_empty() && authority.bytes().all(host_bytes)
    });
    // Browsers leave out the port of the scheme, so an origin with it would never match.
    let has_default_port = origin.starts_with("https://") && origin.ends_with(":443")
        || origin.starts_with("http://") && origin.ends_with(":80");
    match is_origin && !has_default_port {
        true => Ok(origin),
        false => one("Enter an origin as browsers send it, such as https://app.example.com."),
    }
}

/// A whole number within bounds, or the default.
fn number(value: Option<Raw<'_>>, (least, most, default): (u64, u64, u64)) -> Result<u64, Vec<String>> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(default) };
    match (value.shape(), value.text().parse::<i128>()) {
        (Shape::Number, Ok(number)) if number < i128::from(least) => {
            Err(vec![format!("Ensure this value is greater than or equal to {least}.")])
        }
        (Shape::Number, Ok(number)) => u64::try_from(number)
            .ok()
            .filter(|number| *number <= most)
            .ok_or_else(|| vec![format!("Ensure this value is less than or equal to {most}.")]),
        _ => one("A valid integer is required."),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(body: &Value) -> Result<ClientSecretRequest, Value> {
        ClientSecretRequest::read(Raw::parse(body.to_string().as_bytes()).unwrap()).map_err(|faults| {
            let mut writer = Writer::default();
            faults.write(&mut writer);
            serde_json::from_slice(writer.bytes()).unwrap()
        })
    }

    fn with(field: &str, value: Value) -> Result<ClientSecretRequest, Value> {
        let mut body = json!({"user": "ana", "agents": ["home-assistant"], "origin": "https://App.example.com"});
        body[field] = value;
        read(&body)
    }

    #[test]
    fn a_request_names_a_user_agents_and_an_origin_and_the_rest_has_defaults() {
        let terms = ClientTerms { agents: vec!["home-assistant".to_owned()], messages_per_day: 100 };
        let expected = ClientSecretRequest {
            user: "ana".to_owned(),
            origin: "https://app.example.com".to_owned(),
            expires_in: 3600,
            terms,
        };
        assert_eq!(with("expires_in", json!(null)), Ok(expected));
        assert_eq!(with("expires_in", json!(86_400)).unwrap().expires_in, 86_400);
        assert_eq!(with("messages_per_day", json!(7)).unwrap().terms.messages_per_day, 7);
        assert_eq!(with("origin", json!("http://localhost:3000")).unwrap().origin, "http://localhost:3000");
    }

    #[test]
    fn every_fault_of_a_request_is_reported_by_its_field() {
        let required = json!({
            "user": ["This field is required."],
            "agents": ["This field is required."],
            "origin": ["This field is required."],
        });
        assert_eq!(read(&json!({})), Err(required));
        assert_eq!(
            with("expires_in", json!(59)).unwrap_err()["expires_in"][0],
            "Ensure this value is greater than or equal to 60."
        );
        assert_eq!(
            with("expires_in", json!(86_401)).unwrap_err()["expires_in"][0],
            "Ensure this value is less than or equal to 86400."
        );
        for wrong in [json!("60"), json!(60.5), json!(true), json!([])] {
            assert_eq!(
                with("messages_per_day", wrong).unwrap_err()["messages_per_day"][0],
                "A valid integer is required."
            );
        }
        for wrong in [
            "*",
            "null",
            "app.example.com",
            "https://",
            "https://a/b",
            "https://*.example.com",
            "https://a:443",
            "http://a b",
        ] {
            assert!(with("origin", json!(wrong)).unwrap_err()["origin"][0].is_string(), "{wrong}");
        }
        for wrong in [json!([]), json!("a"), json!([1]), json!([""]), json!(vec!["a"; 21])] {
            assert!(with("agents", wrong.clone()).unwrap_err()["agents"][0].is_string(), "{wrong}");
        }
        assert_eq!(
            with("message_per_day", json!(1)),
            Err(json!({"non_field_errors": ["Unknown fields: message_per_day."]}))
        );
        assert!(read(&json!([])).unwrap_err()["non_field_errors"][0].is_string());
    }

    #[test]
    fn a_token_is_read_back_as_it_was_written() {
        let secret = ClientSecret {
            key_hash: std::array::from_fn(|index| index as u8),
            user: "an\"a".to_owned(),
            origin: "https://app.example.com".to_owned(),
            expires_at_ms: 1_794_969_915_124,
            terms: ClientTerms { agents: vec!["a".to_owned(), "b".to_owned()], messages_per_day: 3 },
        };
        assert_eq!(ClientSecret::read(&secret.write()), Some(secret));
        assert_eq!(ClientSecret::read(b"{}"), None);
    }
}
