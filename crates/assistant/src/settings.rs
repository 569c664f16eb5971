//! The settings of an assistant, their sources, and their precedence.
//!
//! In ascending precedence: built-in defaults, the installation's settings (environment variables), the tenant's
//! config, the profile. Unset values do not override. Callers read the environment and open sealed keys; this module
//! gets texts and JSON.

mod resolve;
mod value;

use std::{fmt, time::Duration};

use amalgam_core::SecretText;
use amalgam_protocol::{Json, Raw, Shape, Writer};

use value::Value as _;

pub use resolve::{EffectiveSettings, Fact, Origin, SettingValue, resolve};
pub use value::Truncation;

/// The model if none is configured.
pub const DEFAULT_MODEL: &str = "gpt-4o-mini";
/// The version of a prompt without one.
pub const DEFAULT_PROMPT_VERSION: &str = "v1";
/// The default maximum length of an answer, in tokens.
pub const DEFAULT_MAX_OUTPUT_TOKENS: u64 = 2_048;
/// A history that is too long for the model loses its oldest part instead of failing.
pub const DEFAULT_TRUNCATION: Truncation = Truncation::Auto;
/// The default timeout of a model call.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Whether the model may call several tools at once.
pub const DEFAULT_PARALLEL_TOOL_CALLS: bool = true;
/// The default limit on tool rounds.
pub const DEFAULT_MAX_TOOL_ITERATIONS: u64 = 5;
/// The default maximum length of a user's message, in characters.
pub const DEFAULT_MAX_INPUT_CHARS: u64 = 4_000;
/// The default maximum number of earlier messages sent to the model.
pub const DEFAULT_HISTORY_MAX_MESSAGES: u64 = 20;
/// The default maximum number of characters of these messages.
pub const DEFAULT_HISTORY_MAX_CHARS: u64 = 12_000;
/// The default maximum size of a request's metadata.
pub const DEFAULT_METADATA_MAX_BYTES: u64 = 2_048;
/// Whether answers of the strict contract include the raw response.
pub const DEFAULT_EXPOSE_RAW_RESPONSES: bool = true;

/// The environment variable with the installation's key.
pub const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// A fault of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingFault {
    /// The variable, or the key of the JSON object.
    pub name: String,
    /// The error message, without the value.
    pub reason: String,
}

impl fmt::Display for SettingFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.name, self.reason)
    }
}

/// A setting with its valid values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SettingInfo {
    /// Its key in a tenant's values.
    pub name: &'static str,
    /// Its description.
    pub description: &'static str,
    /// The valid values.
    pub domain: SettingDomain,
}

/// The valid values of a setting, limits included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SettingDomain {
    /// Text with at most this many characters.
    Text(usize),
    /// A number in this range.
    Number(f64, f64),
    /// An integer in this range.
    Integer(u64, u64),
    /// `true` or `false`.
    Boolean,
    /// One of these words.
    Words(&'static [&'static str]),
}

/// Which fields [`AgentSettings::fill`] may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Only unset fields.
    Empty,
    /// All fields.
    Overwrite,
}

macro_rules! settings {
    ($(#[doc = $about:literal] $field:ident: $kind:ty, $variable:literal, $bounds:expr;)*) => {
        /// Configured values; all are optional.
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct AgentSettings {
            /// The API key for the upstream. Never part of [`AgentSettings::values`]: a tenant's key is stored sealed, separately.
            pub api_key: Option<SecretText>,
            $(#[doc = $about] pub $field: Option<$kind>,)*
        }

        impl AgentSettings {
            /// The key of every setting in a tenant's values, and the environment variable that sets it for all
            /// tenants.
            pub const KEYS: &[(&str, &str)] = &[$((stringify!($field), $variable),)*];

            /// All settings with their valid values, for the OpenAPI document.
            pub fn described() -> Vec<SettingInfo> {
                vec![$(SettingInfo {
                    name: stringify!($field),
                    description: $about.trim_ascii(),
                    domain: <$kind>::domain(&$bounds),
                },)*]
            }

            /// Reads environment variables. An empty variable counts as unset; all invalid ones are reported.
            pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<SettingFault>> {
                let mut faults = Vec::new();
                let given = |name: &str| get(name).filter(|text| !text.trim().is_empty());
                let settings = Self {
                    api_key: given(KEY_VARIABLE).map(|key| SecretText(key.trim().to_owned())),
                    $($field: given($variable).and_then(|text| {
                        <$kind>::from_text(&text, &$bounds)
                            .map_err(|reason| faults.push(SettingFault { name: $variable.to_owned(), reason }))
                            .ok()
                    }),)*
                };
                if faults.is_empty() { Ok(settings) } else { Err(faults) }
            }

            /// Applies an object: null or an empty text unsets a field, any other value sets it. Nothing changes if a
            /// value is invalid.
            pub fn change(&mut self, values: Raw<'_>) -> Result<(), Vec<SettingFault>> {
                let mut faults = Vec::new();
                let mut changed = self.clone();
                if values.shape() != Shape::Object {
                    let reason = format!("must be an object, not {}", values.shape().name());
                    return Err(vec![SettingFault { name: "values".to_owned(), reason }]);
                }
                for (key, value) in values.fields() {
                    let unset = value.is_null() || value.as_str().is_some_and(|text| text.decode().trim().is_empty());
                    match &*key.decode() {
                        $(stringify!($field) => match unset {
                            true => changed.$field = None,
                            false => match <$kind>::from_json(value, &$bounds) {
                                Ok(value) => changed.$field = Some(value),
                                Err(reason) => {
                                    faults.push(SettingFault { name: stringify!($field).to_owned(), reason });
                                }
                            },
                        },)*
                        unknown => faults.push(SettingFault {
                            name: unknown.chars().take(64).collect(),
                            reason: "is no setting".to_owned(),
                        }),
                    }
                }
                if faults.is_empty() {
                    *self = changed;
                    return Ok(());
                }
                Err(faults)
            }

            /// The set values, as an object that [`AgentSettings::from_values`] reads; without the upstream's key.
            pub fn values(&self) -> Json {
                let mut writer = Writer::default();
                writer.object(|writer| {
                    $(if let Some(value) = &self.$field {
                        value.write(writer.key(stringify!($field)));
                    })*
                });
                Json::from_writer(writer)
            }

            /// All settings, null if unset, with secrets hidden: for display to an administrator.
            pub fn shown(&self) -> Json {
                let mut writer = Writer::default();
                writer.object(|writer| {
                    $(match &self.$field {
                        Some(value) => value.show(writer.key(stringify!($field))),
                        None => writer.key(stringify!($field)).null(),
                    })*
                });
                Json::from_writer(writer)
            }

            /// Copies the values that `other` has set, except its key. Returns the names of the changed settings.
            pub fn fill(&mut self, other: &Self, fill: Fill) -> Vec<&'static str> {
                let mut changed = Vec::new();
                $(if other.$field.is_some() && self.$field != other.$field
                    && (self.$field.is_none() || fill == Fill::Overwrite)
                {
                    self.$field.clone_from(&other.$field);
                    changed.push(stringify!($field));
                })*
                changed
            }
        }
    };
}

settings! {
    /// The model to call.
    model: String, "AI_AGENT_MODEL", 200;
    /// The configured name of the upstream that serves the model.
    upstream: String, "AI_AGENT_UPSTREAM", 100;
    /// The system prompt of the assistant.
    system_prompt: String, "AI_AGENT_SYSTEM_PROMPT", 100_000;
    /// The prompt version shown in answers.
    prompt_version: String, "AI_AGENT_SYSTEM_PROMPT_VERSION", 100;
    /// The sampling temperature.
    // Unset, the model decides: some models refuse this parameter.
    temperature: f64, "AI_AGENT_TEMPERATURE", (0.0, 2.0);
    /// The nucleus sampling threshold.
    top_p: f64, "AI_AGENT_TOP_P", (0.0, 1.0);
    /// The maximum number of tokens of an answer.
    max_output_tokens: u64, "AI_AGENT_MAX_OUTPUT_TOKENS", (1, 1_000_000);
    /// Whether a history that exceeds the context window loses its oldest part, or the turn fails.
    truncation: Truncation, "AI_AGENT_TRUNCATION", ();
    /// The timeout of one model call, in seconds.
    request_timeout: Duration, "AI_AGENT_REQUEST_TIMEOUT", (1, 3_600);
    /// Whether the model may call several tools at once.
    parallel_tool_calls: bool, "AI_AGENT_PARALLEL_TOOL_CALLS", ();
    /// The maximum number of tool rounds per turn.
    max_tool_iterations: u64, "AI_AGENT_MAX_TOOL_ITERATIONS", (1, 100);
    /// The maximum length of a user's message, in characters.
    max_input_chars: u64, "AI_AGENT_MAX_INPUT_CHARS", (1, 1_000_000);
    /// The maximum number of earlier messages sent to the model.
    history_max_messages: u64, "AI_AGENT_HISTORY_MAX_MESSAGES", (0, 10_000);
    /// The maximum number of characters of earlier messages sent to the model.
    history_max_chars: u64, "AI_AGENT_HISTORY_MAX_CHARS", (0, 10_000_000);
    /// The maximum size of a request's metadata, in bytes.
    metadata_max_bytes: u64, "AI_AGENT_METADATA_MAX_BYTES", (2, 1_048_576);
    /// Whether responses of `/api/agent/execute` include the provider's response as `RawResponseJson`.
    expose_raw_responses: bool, "AI_AGENT_EXPOSE_RAW_RESPONSES", ();
    /// The salt used to hash user ids before they are sent to an upstream; shown as `***`.
    // Unset, no user id is sent to an upstream.
    safety_salt: SecretText, "AI_AGENT_SAFETY_SALT", 1_000;
}

impl AgentSettings {
    /// The built-in defaults. There is none for the prompt, the upstream and the salt.
    pub fn defaults() -> Self {
        Self {
            model: Some(DEFAULT_MODEL.to_owned()),
            prompt_version: Some(DEFAULT_PROMPT_VERSION.to_owned()),
            max_output_tokens: Some(DEFAULT_MAX_OUTPUT_TOKENS),
            truncation: Some(DEFAULT_TRUNCATION),
            request_timeout: Some(DEFAULT_REQUEST_TIMEOUT),
            parallel_tool_calls: Some(DEFAULT_PARALLEL_TOOL_CALLS),
            max_tool_iterations: Some(DEFAULT_MAX_TOOL_ITERATIONS),
            max_input_chars: Some(DEFAULT_MAX_INPUT_CHARS),
            history_max_messages: Some(DEFAULT_HISTORY_MAX_MESSAGES),
            history_max_chars: Some(DEFAULT_HISTORY_MAX_CHARS),
            metadata_max_bytes: Some(DEFAULT_METADATA_MAX_BYTES),
            expose_raw_responses: Some(DEFAULT_EXPOSE_RAW_RESPONSES),
            ..Self::default()
        }
    }

    /// Parses a tenant's values as [`AgentSettings::values`] wrote them.
    pub fn from_values(values: Raw<'_>) -> Result<Self, Vec<SettingFault>> {
        let mut settings = Self::default();
        settings.change(values).map(|()| settings)
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
