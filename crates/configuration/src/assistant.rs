//! Settings for the assistants of all tenants from `AI_AGENT_…` variables, and their API key.
//!
//! They keep their own names because existing deployments set them already. Tenants and profiles may override them.

use amalgam_assistant::settings::{AgentSettings, KEY_VARIABLE};

use super::fault::ValueOrigin;
use super::reader::Reader;
use super::sources::Environment;
use super::suggest::did_you_mean;

const PREFIX: &str = "AI_AGENT_";

/// Reads the variables. An invalid value is a fault, an unknown variable a warning.
pub(crate) fn read(environment: &Environment, reader: &mut Reader<'_>) -> AgentSettings {
    let known = || AgentSettings::KEYS.iter().map(|(_, variable)| *variable);
    for name in known().chain([KEY_VARIABLE]) {
        if environment.get(name).is_err() {
            reader.fault(ValueOrigin::Variable(name.to_owned()), "the value is not readable text");
        }
    }
    for name in environment.names(PREFIX).filter(|name| !known().any(|variable| variable == *name)) {
        let meant = did_you_mean(name, known());
        reader.warnings.push(format!("the variable {name} means nothing here{meant}"));
    }
    let get = |name: &str| environment.get(name).ok().flatten().map(str::to_owned);
    AgentSettings::from_variables(get).unwrap_or_else(|faults| {
        for fault in faults {
            reader.fault(ValueOrigin::Variable(fault.name), fault.reason);
        }
        AgentSettings::default()
    })
}

#[cfg(test)]
mod tests {
    use amalgam_core::SecretText;

    use crate::{Config, Sources};

    fn sources(variables: &[(&str, &str)]) -> Sources {
        Sources { env: variables.iter().copied().collect(), ..Sources::default() }
    }

    #[test]
    fn variables_set_what_they_set_everywhere() {
        // RNCC-40
        let variables = [
            ("AI_AGENT_MODEL", "gpt-4o"),
            ("AI_AGENT_TEMPERATURE", "0.3"),
            ("AI_AGENT_TOP_P", ""),
            ("OPENAI_API_KEY", "sk-1"),
        ];
        let settings = Config::load(&sources(&variables)).unwrap().config.assistant;
        assert_eq!(
            (settings.model.as_deref(), settings.temperature, settings.top_p),
            (Some("gpt-4o"), Some(0.3), None)
        );
        assert_eq!(settings.api_key, Some(SecretText("sk-1".to_owned())));
    }

    #[test]
    fn a_variable_that_cannot_be_used_stops_the_start_and_is_named_without_its_value() {
        let variables = [("AI_AGENT_TEMPERATURE", "warm"), ("AI_AGENT_MAX_INPUT_CHARS", "0")];
        let faults = Config::load(&sources(&variables)).unwrap_err().to_string();
        assert!(faults.contains("AI_AGENT_TEMPERATURE") && faults.contains("AI_AGENT_MAX_INPUT_CHARS"), "{faults}");
        assert!(!faults.contains("warm"), "{faults}");
    }

    #[test]
    fn an_unknown_variable_is_a_warning_with_a_suggestion() {
        let loaded = Config::load(&sources(&[("AI_AGENT_MODLE", "x")])).unwrap();
        assert_eq!(loaded.warnings.len(), 1);
        assert!(loaded.warnings[0].contains("AI_AGENT_MODEL'?"), "{:?}", loaded.warnings);
    }
}
