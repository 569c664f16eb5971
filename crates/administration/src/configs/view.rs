//! A tenant's settings as administrators see them, and the schemas for reading and changing them. [`AgentSettings`] is the only
//! place that names the settings and their limits.

use std::borrow::Cow;

use amalgam_app::StoredConfig;
use amalgam_assistant::settings::{AgentSettings, EffectiveSettings, Origin, SettingDomain};
use amalgam_protocol::{Json, Writer};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::{Map, Value, json};

use crate::fields::{UnixSeconds, Verbatim};

/// A tenant's assistant settings.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AgentConfig")]
pub struct ConfigView {
    #[schemars(range(min = 1))]
    tenant_id: i64,
    #[schemars(extend("const" = "agent_config"))]
    object: &'static str,
    #[serde(flatten)]
    settings: ShownSettings,
    /// Whether the tenant has its own upstream key.
    has_api_key: bool,
    /// Incremented with every change; 0 if nothing was ever set.
    revision: u64,
    updated_at: Option<UnixSeconds>,
    #[schemars(schema_with = "resolved_shape")]
    resolved: Verbatim,
}

/// Every setting, null where it is not set, secrets hidden.
struct ShownSettings(Json);

impl ConfigView {
    pub(super) fn of(tenant_id: i64, stored: &StoredConfig, resolved: &EffectiveSettings) -> Self {
        let mut writer = Writer::default();
        resolved.write(&mut writer);
        Self {
            tenant_id,
            object: "agent_config",
            settings: ShownSettings(stored.settings.shown()),
            has_api_key: stored.api_key.is_some(),
            revision: stored.revision,
            updated_at: stored.updated_at_ms.map(UnixSeconds::from_ms),
            resolved: Verbatim(Json::from_writer(writer)),
        }
    }
}

impl Serialize for ShownSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.raw().fields() {
            map.serialize_entry(&name.decode(), &Verbatim(value.into()))?;
        }
        map.end()
    }
}

impl JsonSchema for ShownSettings {
    fn schema_name() -> Cow<'static, str> {
        "ShownSettings".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = AgentSettings::KEYS.iter().map(|(name, _)| *name).collect();
        json_schema!({"type": "object", "required": names, "properties": settings(&["null"])})
    }
}

/// What `PATCH` takes. [`AgentSettings`] reads it.
pub(crate) struct ChangeConfig;

impl JsonSchema for ChangeConfig {
    fn schema_name() -> Cow<'static, str> {
        "ChangeConfig".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Forms send text, so numbers and booleans may be strings.
        let mut properties = settings(&["null", "string"]);
        let description = "The tenant's own upstream key. Stored encrypted and never returned.";
        properties.insert("api_key".to_owned(), json!({"type": ["string", "null"], "description": description}));
        json_schema!({
            "type": "object",
            "description": "Settings to change; null unsets a setting.",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

/// The schema of every setting by name. Each accepts these types in addition to its own.
fn settings(others: &[&str]) -> Map<String, Value> {
    let types = |own: &'static str| -> Vec<&str> {
        std::iter::once(own).chain(others.iter().copied().filter(|other| *other != own)).collect()
    };
    let shape = |domain: SettingDomain| match domain {
        SettingDomain::Text(longest) => json!({"type": types("string"), "maxLength": longest}),
        SettingDomain::Number(least, most) => {
            json!({"type": types("number"), "minimum": number(least), "maximum": number(most)})
        }
        SettingDomain::Integer(least, most) => json!({"type": types("integer"), "minimum": least, "maximum": most}),
        SettingDomain::Boolean => json!({"type": types("boolean")}),
        SettingDomain::Words(words) => {
            json!({"enum": words.iter().copied().map(Some).chain([None]).collect::<Vec<_>>()})
        }
    };
    let described = AgentSettings::described().into_iter().map(|setting| {
        let mut shape = shape(setting.domain);
        shape["description"] = json!(setting.description);
        (setting.name.to_owned(), shape)
    });
    described.collect()
}

/// Whole numbers without a fraction.
fn number(bound: f64) -> Value {
    match bound.fract() == 0.0 {
        true => json!(bound as i64),
        false => json!(bound),
    }
}

fn resolved_shape(_: &mut SchemaGenerator) -> Schema {
    let sourced = json!({
        "type": "object",
        "description": "A value and its origin.",
        "required": ["value", "origin"],
        "properties": {
            "value": {"description": "The effective value; secrets are shown as `***`."},
            "origin": {"enum": Origin::ALL.map(Origin::name)},
        },
    });
    let names = || std::iter::once("api_key").chain(AgentSettings::KEYS.iter().map(|(name, _)| *name));
    let properties: Map<String, Value> = names().map(|name| (name.to_owned(), sourced.clone())).collect();
    json_schema!({
        "type": "object",
        "description": "The effective settings of a turn without a profile.",
        "required": names().collect::<Vec<_>>(),
        "properties": properties,
    })
}
