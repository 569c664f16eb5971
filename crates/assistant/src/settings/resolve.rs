//! Resolves the effective settings and their origins.

use std::time::Duration;

use amalgam_core::{SecretText, store::AgentProfile};
use amalgam_protocol::{Json, Writer};

use super::{
    AgentSettings, DEFAULT_EXPOSE_RAW_RESPONSES, DEFAULT_HISTORY_MAX_CHARS, DEFAULT_HISTORY_MAX_MESSAGES,
    DEFAULT_MAX_INPUT_CHARS, DEFAULT_MAX_TOOL_ITERATIONS, DEFAULT_METADATA_MAX_BYTES, DEFAULT_MODEL,
    DEFAULT_PARALLEL_TOOL_CALLS, DEFAULT_PROMPT_VERSION, DEFAULT_REQUEST_TIMEOUT, DEFAULT_TRUNCATION,
    value::{Truncation, Value},
};

/// The origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Built in.
    Default,
    /// The installation's settings.
    Settings,
    /// The tenant's config.
    Config,
    /// The profile.
    Profile,
}

impl Origin {
    /// All origins, in ascending precedence.
    pub const ALL: [Self; 4] = [Self::Default, Self::Settings, Self::Config, Self::Profile];

    /// The name in the API and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Settings => "settings",
            Self::Config => "config",
            Self::Profile => "profile",
        }
    }
}

/// A value and its origin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SettingValue<T> {
    /// The effective value.
    pub value: T,
    /// The origin of the value.
    pub origin: Origin,
}

/// The settings of one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveSettings {
    /// The key for the upstream.
    pub api_key: SettingValue<Option<SecretText>>,
    /// The model.
    pub model: SettingValue<String>,
    /// The upstream; by default derived from the model's name.
    pub upstream: SettingValue<Option<String>>,
    /// The tenant's part of the prompt; may be empty.
    pub system_prompt: SettingValue<String>,
    /// The prompt version that answers show.
    pub prompt_version: SettingValue<String>,
    /// The model decides if unset.
    pub temperature: SettingValue<Option<f64>>,
    /// The model decides if unset.
    pub top_p: SettingValue<Option<f64>>,
    /// The model decides if unset.
    pub max_output_tokens: SettingValue<Option<u64>>,
    /// How a history that is too long for the model is handled.
    pub truncation: SettingValue<Truncation>,
    /// The timeout of one model call.
    pub request_timeout: SettingValue<Duration>,
    /// Whether the model may call several tools at once.
    pub parallel_tool_calls: SettingValue<bool>,
    /// The limit on tool rounds.
    pub max_tool_iterations: SettingValue<u64>,
    /// The maximum length of a user's message, in characters.
    pub max_input_chars: SettingValue<u64>,
    /// The maximum number of earlier messages sent to the model.
    pub history_max_messages: SettingValue<u64>,
    /// The maximum number of characters of these messages.
    pub history_max_chars: SettingValue<u64>,
    /// The maximum size of a request's metadata, in bytes.
    pub metadata_max_bytes: SettingValue<u64>,
    /// Whether answers of the strict contract include the raw response. C-12
    pub expose_raw_responses: SettingValue<bool>,
    /// The salt for hashing user ids; without it no identifier is sent.
    pub safety_salt: SettingValue<Option<SecretText>>,
}

/// One effective setting, for display.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// The setting.
    pub key: &'static str,
    /// Its value; secrets as `***`.
    pub value: Json,
    /// The origin of the value.
    pub origin: Origin,
}

/// The effective settings: the profile's values override the tenant's, those the installation's, and those `defaults`.
///
/// `config` has the tenant's key, opened, if there is one.
pub fn resolve(
    defaults: &AgentSettings,
    settings: &AgentSettings,
    config: &AgentSettings,
    profile: Option<&AgentProfile>,
) -> EffectiveSettings {
    let layers = [(config, Origin::Config), (settings, Origin::Settings), (defaults, Origin::Default)];
    let model = profile.and_then(|profile| profile.model.clone()).filter(|model| !model.trim().is_empty());
    let model = match model {
        Some(value) => SettingValue { value, origin: Origin::Profile },
        None => first(layers, |from| &from.model, DEFAULT_MODEL.to_owned()),
    };
    EffectiveSettings {
        api_key: optional_value(layers, |from| &from.api_key),
        model,
        upstream: optional_value(layers, |from| &from.upstream),
        system_prompt: first(layers, |from| &from.system_prompt, String::new()),
        prompt_version: first(layers, |from| &from.prompt_version, DEFAULT_PROMPT_VERSION.to_owned()),
        temperature: optional_value(layers, |from| &from.temperature),
        top_p: optional_value(layers, |from| &from.top_p),
        max_output_tokens: optional_value(layers, |from| &from.max_output_tokens),
        truncation: first(layers, |from| &from.truncation, DEFAULT_TRUNCATION),
        request_timeout: first(layers, |from| &from.request_timeout, DEFAULT_REQUEST_TIMEOUT),
        parallel_tool_calls: first(layers, |from| &from.parallel_tool_calls, DEFAULT_PARALLEL_TOOL_CALLS),
        max_tool_iterations: first(layers, |from| &from.max_tool_iterations, DEFAULT_MAX_TOOL_ITERATIONS),
        max_input_chars: first(layers, |from| &from.max_input_chars, DEFAULT_MAX_INPUT_CHARS),
        history_max_messages: first(layers, |from| &from.history_max_messages, DEFAULT_HISTORY_MAX_MESSAGES),
        history_max_chars: first(layers, |from| &from.history_max_chars, DEFAULT_HISTORY_MAX_CHARS),
        metadata_max_bytes: first(layers, |from| &from.metadata_max_bytes, DEFAULT_METADATA_MAX_BYTES),
        expose_raw_responses: first(layers, |from| &from.expose_raw_responses, DEFAULT_EXPOSE_RAW_RESPONSES),
        safety_salt: optional_value(layers, |from| &from.safety_salt),
    }
}

type Layers<'a> = [(&'a AgentSettings, Origin); 3];

/// The first value that is set.
fn optional_value<'a, T: Clone + 'a>(
    layers: Layers<'a>,
    field: impl Fn(&'a AgentSettings) -> &'a Option<T>,
) -> SettingValue<Option<T>> {
    let set = layers.into_iter().find_map(|(from, origin)| Some((field(from).clone()?, origin)));
    match set {
        Some((value, origin)) => SettingValue { value: Some(value), origin },
        None => SettingValue { value: None, origin: Origin::Default },
    }
}

/// The first value that is set, or the default.
fn first<'a, T: Clone + 'a>(
    layers: Layers<'a>,
    field: impl Fn(&'a AgentSettings) -> &'a Option<T>,
    built_in: T,
) -> SettingValue<T> {
    let SettingValue { value, origin } = optional_value(layers, field);
    SettingValue { value: value.unwrap_or(built_in), origin }
}

impl EffectiveSettings {
    /// Every value with its origin, in the order in which settings are documented.
    pub fn facts(&self) -> Vec<Fact> {
        vec![
            optional("api_key", &self.api_key),
            fact("model", &self.model),
            optional("upstream", &self.upstream),
            fact("system_prompt", &self.system_prompt),
            fact("prompt_version", &self.prompt_version),
            optional("temperature", &self.temperature),
            optional("top_p", &self.top_p),
            optional("max_output_tokens", &self.max_output_tokens),
            fact("truncation", &self.truncation),
            fact("request_timeout", &self.request_timeout),
            fact("parallel_tool_calls", &self.parallel_tool_calls),
            fact("max_tool_iterations", &self.max_tool_iterations),
            fact("max_input_chars", &self.max_input_chars),
            fact("history_max_messages", &self.history_max_messages),
            fact("history_max_chars", &self.history_max_chars),
            fact("metadata_max_bytes", &self.metadata_max_bytes),
            fact("expose_raw_responses", &self.expose_raw_responses),
            optional("safety_salt", &self.safety_salt),
        ]
    }

    /// The same as an object: `{"model": {"value": …, "origin": "config"}, …}`.
    pub fn write(&self, writer: &mut Writer) {
        writer.object(|writer| {
            for fact in self.facts() {
                writer.key(fact.key).object(|writer| {
                    writer.key("value").raw(fact.value.raw());
                    writer.key("origin").string(fact.origin.name());
                });
            }
        });
    }
}

fn fact<T: Value>(key: &'static str, sourced: &SettingValue<T>) -> Fact {
    new_fact(key, sourced.origin, |writer| sourced.value.show(writer))
}

fn optional<T: Value>(key: &'static str, sourced: &SettingValue<Option<T>>) -> Fact {
    new_fact(key, sourced.origin, |writer| match &sourced.value {
        Some(value) => value.show(writer),
        None => writer.null(),
    })
}

fn new_fact(key: &'static str, origin: Origin, write: impl FnOnce(&mut Writer)) -> Fact {
    let mut writer = Writer::default();
    write(&mut writer);
    Fact { key, value: Json::from_writer(writer), origin }
}
