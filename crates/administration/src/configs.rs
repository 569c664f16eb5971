//! A tenant's assistant settings, as set and as effective.

mod view;

use amalgam_app::{Application, StoredConfig, TenantConfigs, assistant::with_default_model};
use amalgam_assistant::settings::{AgentSettings, SettingFault};
use amalgam_core::{Actor, Catalog, Fault, Scope, SecretText};
use amalgam_protocol::{Json, Raw, Writer};
use bytes::Bytes;

use super::{
    access::{no_tenant, within},
    request::{self, mistyped, wrong},
};

pub(super) use view::ChangeConfig;
pub use view::ConfigView;

/// The maximum length of an upstream key.
const LONGEST_KEY: usize = 1_000;

/// Replaces a secret in responses.
const HIDDEN: &str = "***";

/// Sets the settings that `body` names; null unsets one. Concurrent changes of other settings are preserved.
pub async fn change_config(
    app: &Application,
    actor: &Actor,
    tenant: &Scope,
    body: &Bytes,
) -> Result<ConfigView, Fault> {
    let change = Change::read(body)?;
    let context = tenant.seal_context();
    let configs = app.tenant_configs();
    let changed = configs.change(within(tenant)?, actor, |draft| {
        match &change.api_key {
            KeyChange::None => {}
            KeyChange::Unset => draft.api_key = None,
            KeyChange::Set(key) => draft.api_key = Some(app.seal.seal(&context, key.0.as_bytes())),
        }
        draft.settings.change(change.values.raw()).map_err(refusal)
    });
    let (stored, ()) = changed.await?.ok_or_else(|| no_tenant(tenant.tenant_id()))?;
    Ok(config_view(&configs, &*app.catalog, tenant, &stored).await)
}

/// The settings of a tenant and their effective values, for its administrator.
pub async fn config_of(
    configs: &TenantConfigs<'_>,
    catalog: &dyn Catalog,
    tenant: &Scope,
) -> Result<ConfigView, Fault> {
    let stored = configs.load(within(tenant)?).await?;
    Ok(config_view(configs, catalog, tenant, &stored).await)
}

async fn config_view(
    configs: &TenantConfigs<'_>,
    catalog: &dyn Catalog,
    tenant: &Scope,
    stored: &StoredConfig,
) -> ConfigView {
    let resolved = with_default_model(catalog, configs.resolve(stored, None)).await;
    ConfigView::of(tenant.tenant_id(), stored, &resolved)
}

/// The change that a body describes.
struct Change {
    /// Settings by name.
    values: Json,
    api_key: KeyChange,
}

enum KeyChange {
    None,
    Unset,
    Set(SecretText),
}

impl Change {
    /// Settings are named and checked by the type that holds them; their text is handed on as it was written.
    fn read(body: &Bytes) -> Result<Self, Fault> {
        let mut change = Self { values: Json::from(Raw::EMPTY_OBJECT), api_key: KeyChange::None };
        let (object, known) = (request::object(body)?, known());
        let mut writer = Writer::with_capacity(body.len());
        let mut fault = None;
        writer.object(|writer| {
            for (key, value) in object.fields() {
                let name = key.decode();
                match &*name {
                    "api_key" => match KeyChange::read(value) {
                        Ok(api_key) => change.api_key = api_key,
                        Err(error) => drop(fault.get_or_insert(error)),
                    },
                    // A response can be sent back: a hidden secret is left unchanged.
                    "safety_salt" if value.as_str().is_some_and(|text| text.is(HIDDEN)) => {}
                    name if known.contains(&name) => writer.key_text(name).raw(value),
                    name => drop(fault.get_or_insert_with(|| request::unknown(name, &known))),
                }
            }
        });
        change.values = Json::from_writer(writer);
        fault.map_or(Ok(change), Err)
    }
}

impl KeyChange {
    fn read(value: Raw<'_>) -> Result<Self, Fault> {
        let Some(text) = value.as_str() else {
            return if value.is_null() { Ok(Self::Unset) } else { Err(mistyped("api_key", "a string")) };
        };
        match text.decode().trim() {
            "" => Ok(Self::Unset),
            // The key is sent in a header.
            key if key.len() <= LONGEST_KEY && key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(Self::Set(SecretText(key.to_owned())))
            }
            _ => Err(wrong("api_key", &format!("must have 1 to {LONGEST_KEY} visible characters"))),
        }
    }
}

/// The names of all settings.
fn known() -> Vec<&'static str> {
    ["api_key"].into_iter().chain(AgentSettings::KEYS.iter().map(|(key, _)| *key)).collect()
}

/// Invalid settings as a fault: `param` names the first, the message all of them.
fn refusal(faults: Vec<SettingFault>) -> Fault {
    let words: Vec<String> =
        faults.iter().map(|fault| format!("Invalid value for '{}': {}.", fault.name, fault.reason)).collect();
    let first = faults.into_iter().next().map(|fault| fault.name).unwrap_or_default();
    Fault::invalid(first, words.join(" ")).code("invalid_value")
}

#[cfg(test)]
mod tests {
    use amalgam_protocol::Raw;

    use super::*;

    fn change(body: &str) -> Result<Change, Fault> {
        Change::read(&body.to_owned().into())
    }

    #[test]
    fn a_key_is_set_unset_or_left_alone() {
        let read = |body: &str| change(body).map_err(|fault| fault.into_parts().message).unwrap().api_key;
        assert!(matches!(read("{}"), KeyChange::None));
        assert!(matches!(read(r#"{"api_key": null}"#), KeyChange::Unset));
        assert!(matches!(read(r#"{"api_key": " "}"#), KeyChange::Unset));
        assert!(matches!(read(r#"{"api_key": " sk-1 "}"#), KeyChange::Set(key) if key.0 == "sk-1"));
        for bad in [r#"{"api_key": 5}"#, r#"{"api_key": "a b"}"#, r#"{"api_key": "a\nb"}"#] {
            let fault = change(bad).err().unwrap();
            assert_eq!(fault.param.as_deref(), Some("api_key"), "{bad}");
        }
    }

    #[test]
    fn settings_go_on_as_they_were_written_and_a_hidden_secret_stays() {
        let values = |body: &str| {
            change(body).map_err(|fault| fault.into_parts().message).unwrap().values.raw().text().to_owned()
        };
        assert_eq!(values(r#"{"model": "x", "api_key": "k", "top_p": 0.50}"#), r#"{"model":"x","top_p":0.50}"#);
        assert_eq!(values(r#"{"safety_salt": "***", "model": null}"#), r#"{"model":null}"#);
        assert_eq!(values(r#"{"safety_salt": "salt"}"#), r#"{"safety_salt":"salt"}"#);
    }

    #[test]
    fn faults_name_the_field_and_what_would_be_right() {
        let mut settings = AgentSettings::default();
        let wrong = Raw::parse(br#"{"temperature": 3, "max_input_chars": "many"}"#).unwrap();
        let fault = refusal(settings.change(wrong).unwrap_err());
        assert_eq!(fault.param.as_deref(), Some("temperature"));
        assert!(fault.message.contains("'max_input_chars'"), "{}", fault.message);
        let unknown = change(r#"{"modle": "x"}"#).err().unwrap();
        assert_eq!((unknown.param.as_deref(), unknown.code.as_deref()), (Some("modle"), Some("unknown_parameter")));
    }
}
