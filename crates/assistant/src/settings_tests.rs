use amalgam_core::store::AgentProfile;
use proptest::prelude::*;
use serde_json::{Value as JsonValue, json};

use super::*;

fn settings(values: &JsonValue) -> Result<AgentSettings, Vec<String>> {
    let text = values.to_string();
    let raw = Raw::parse(text.as_bytes()).unwrap();
    AgentSettings::from_values(raw).map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

fn good(values: &JsonValue) -> AgentSettings {
    settings(values).unwrap()
}

fn variables(given: &[(&str, &str)]) -> Result<AgentSettings, Vec<String>> {
    let get = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    AgentSettings::from_variables(get).map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

fn shown(json: &Json) -> JsonValue {
    serde_json::from_slice(json.bytes()).unwrap()
}

#[test]
fn every_setting_is_read_from_its_variable() {
    // RNCC-40
    let read = variables(&[
        ("OPENAI_API_KEY", " sk-test\n"),
        ("AI_AGENT_MODEL", "gpt-4o"),
        ("AI_AGENT_UPSTREAM", "openai"),
        ("AI_AGENT_SYSTEM_PROMPT", "Be kind.\n"),
        ("AI_AGENT_SYSTEM_PROMPT_VERSION", "v7"),
        ("AI_AGENT_TEMPERATURE", "0.25"),
        ("AI_AGENT_TOP_P", "1"),
        ("AI_AGENT_MAX_OUTPUT_TOKENS", "700"),
        ("AI_AGENT_TRUNCATION", "Disabled"),
        ("AI_AGENT_REQUEST_TIMEOUT", "12.5"),
        ("AI_AGENT_PARALLEL_TOOL_CALLS", "False"),
        ("AI_AGENT_MAX_TOOL_ITERATIONS", "3"),
        ("AI_AGENT_MAX_INPUT_CHARS", "100"),
        ("AI_AGENT_HISTORY_MAX_MESSAGES", "0"),
        ("AI_AGENT_HISTORY_MAX_CHARS", "5000"),
        ("AI_AGENT_METADATA_MAX_BYTES", "64"),
        ("AI_AGENT_EXPOSE_RAW_RESPONSES", "false"),
        ("AI_AGENT_SAFETY_SALT", "pepper"),
        ("AI_AGENT_ANYTHING_ELSE", "is not ours"),
    ]);
    let expected = AgentSettings {
        api_key: Some(SecretText("sk-test".to_owned())),
        model: Some("gpt-4o".to_owned()),
        upstream: Some("openai".to_owned()),
        system_prompt: Some("Be kind.\n".to_owned()),
        prompt_version: Some("v7".to_owned()),
        temperature: Some(0.25),
        top_p: Some(1.0),
        max_output_tokens: Some(700),
        truncation: Some(Truncation::Disabled),
        request_timeout: Some(Duration::from_millis(12_500)),
        parallel_tool_calls: Some(false),
        max_tool_iterations: Some(3),
        max_input_chars: Some(100),
        history_max_messages: Some(0),
        history_max_chars: Some(5_000),
        metadata_max_bytes: Some(64),
        expose_raw_responses: Some(false),
        safety_salt: Some(SecretText("pepper".to_owned())),
    };
    assert_eq!(read, Ok(expected));
}

#[test]
fn a_variable_that_is_empty_is_not_set() {
    let read = variables(&[("AI_AGENT_MODEL", ""), ("AI_AGENT_TOP_P", " "), ("OPENAI_API_KEY", "")]);
    assert_eq!(read, Ok(AgentSettings::default()));
}

#[test]
fn every_variable_that_cannot_be_used_is_named_without_its_value() {
    let read = variables(&[
        ("AI_AGENT_MODEL", "fine"),
        ("AI_AGENT_TEMPERATURE", "NaN"),
        ("AI_AGENT_TRUNCATION", "sometimes"),
        ("AI_AGENT_REQUEST_TIMEOUT", "0"),
        ("AI_AGENT_MAX_TOOL_ITERATIONS", "many"),
        ("AI_AGENT_PARALLEL_TOOL_CALLS", "perhaps"),
    ]);
    let expected = [
        "AI_AGENT_TEMPERATURE: must be a number from 0 to 2",
        "AI_AGENT_TRUNCATION: must be auto or disabled",
        "AI_AGENT_REQUEST_TIMEOUT: must be 1 to 3600 seconds, as a number or such as 90s",
        "AI_AGENT_PARALLEL_TOOL_CALLS: must be true or false",
        "AI_AGENT_MAX_TOOL_ITERATIONS: must be a whole number from 1 to 100",
    ];
    assert_eq!(read, Err(expected.map(str::to_owned).to_vec()));
}

#[test]
fn bounds_are_kept_on_both_sides() {
    for (key, inside, outside) in [
        (
            "temperature",
            vec![json!(0), json!(2), json!("1.5")],
            vec![json!(-0.1), json!(2.1), json!("hot"), json!(true)],
        ),
        ("top_p", vec![json!(0), json!(1)], vec![json!(1.01)]),
        ("max_output_tokens", vec![json!(1), json!(1_000_000)], vec![json!(0), json!(1_000_001), json!(1.5)]),
        ("request_timeout", vec![json!(1), json!(3600), json!("2m")], vec![json!(0.9), json!(3601), json!("2 m")]),
        ("max_tool_iterations", vec![json!(1), json!(100)], vec![json!(0), json!(101)]),
        ("max_input_chars", vec![json!(1)], vec![json!(0), json!(-1)]),
        ("history_max_messages", vec![json!(0), json!(10_000)], vec![json!(10_001)]),
        ("history_max_chars", vec![json!(0)], vec![json!(10_000_001)]),
        ("metadata_max_bytes", vec![json!(2)], vec![json!(1), json!(1_048_577)]),
        ("parallel_tool_calls", vec![json!(true), json!("no")], vec![json!("maybe"), json!([true])]),
        ("truncation", vec![json!("auto")], vec![json!("none"), json!({})]),
        ("model", vec![json!("é".repeat(200))], vec![json!("é".repeat(201)), json!(4), json!("a\0b")]),
    ] {
        for value in inside {
            assert!(settings(&json!({key: value})).is_ok(), "{key} {value}");
        }
        for value in outside {
            let faults = settings(&json!({key: value})).unwrap_err();
            assert!(matches!(faults.as_slice(), [fault] if fault.starts_with(key)), "{key} {value}: {faults:?}");
        }
    }
}

#[test]
fn null_and_blank_unset_and_what_is_not_named_stays() {
    // RNCC-41
    let mut config = good(&json!({"model": "a", "temperature": 1, "system_prompt": "p", "top_p": null}));
    let patch = json!({"model": null, "system_prompt": "  ", "max_input_chars": 10}).to_string();
    config.change(Raw::parse(patch.as_bytes()).unwrap()).unwrap();
    assert_eq!(config, good(&json!({"temperature": 1, "max_input_chars": 10})));
}

#[test]
fn a_change_with_a_fault_changes_nothing_and_tells_every_fault() {
    let mut config = good(&json!({"model": "a"}));
    let patch = json!({"model": "b", "api_key": "sk", "temprature": 1, "top_p": 2}).to_string();
    let faults = config.change(Raw::parse(patch.as_bytes()).unwrap()).unwrap_err();
    let named: Vec<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
    assert_eq!((config, named), (good(&json!({"model": "a"})), vec!["api_key", "temprature", "top_p"]));
    assert_eq!(settings(&json!([])), Err(vec!["values: must be an object, not an array".to_owned()]));
}

#[test]
fn secrets_are_kept_but_never_shown() {
    let mut config = good(&json!({"safety_salt": "pepper", "request_timeout": 30}));
    config.api_key = Some(SecretText("sk-test".to_owned()));
    assert_eq!(shown(&config.values()), json!({"safety_salt": "pepper", "request_timeout": 30}));
    let told = shown(&config.shown());
    assert_eq!([&told["safety_salt"], &told["model"]], [&json!("***"), &JsonValue::Null]);
    assert_eq!(told.as_object().unwrap().len(), AgentSettings::KEYS.len());
    let mut writer = Writer::default();
    resolve(&AgentSettings::defaults(), &AgentSettings::default(), &config, None).write(&mut writer);
    let told = format!("{config:?} {}", String::from_utf8_lossy(writer.bytes()));
    assert!(!told.contains("pepper") && !told.contains("sk-test"), "{told}");
}

fn profile(model: Option<&str>) -> AgentProfile {
    AgentProfile {
        slug: "home-assistant".to_owned(),
        prompt: "Help.".to_owned(),
        tools: Vec::new(),
        model: model.map(str::to_owned),
        tool_choice: None,
        active: true,
        version: 1,
        created_at_ms: 0,
        updated_at_ms: 0,
    }
}

#[test]
fn the_nearest_word_counts_and_its_origin_is_told() {
    // RNCC-41
    let ours = good(&json!({"model": "s", "system_prompt": "s", "temperature": 0.5, "max_input_chars": 9}));
    let config = good(&json!({"model": "c", "system_prompt": "c", "history_max_messages": 4}));
    let resolved = resolve(&AgentSettings::defaults(), &ours, &config, Some(&profile(Some("p"))));
    let told: Vec<(&str, JsonValue, &str)> =
        resolved.facts().into_iter().map(|fact| (fact.key, shown(&fact.value), fact.origin.name())).collect();
    let expected = vec![
        ("api_key", JsonValue::Null, "default"),
        ("model", json!("p"), "profile"),
        ("upstream", JsonValue::Null, "default"),
        ("system_prompt", json!("c"), "config"),
        ("prompt_version", json!("v1"), "default"),
        ("temperature", json!(0.5), "settings"),
        ("top_p", JsonValue::Null, "default"),
        ("max_output_tokens", json!(2048), "default"),
        ("truncation", json!("auto"), "default"),
        ("request_timeout", json!(60), "default"),
        ("parallel_tool_calls", json!(true), "default"),
        ("max_tool_iterations", json!(5), "default"),
        ("max_input_chars", json!(9), "settings"),
        ("history_max_messages", json!(4), "config"),
        ("history_max_chars", json!(12_000), "default"),
        ("metadata_max_bytes", json!(2048), "default"),
        ("expose_raw_responses", json!(true), "default"),
        ("safety_salt", JsonValue::Null, "default"),
    ];
    assert_eq!(told, expected);
    for model in [None, Some(" ")] {
        let resolved = resolve(&AgentSettings::defaults(), &ours, &config, Some(&profile(model)));
        assert_eq!(resolved.model, SettingValue { value: "c".to_owned(), origin: Origin::Config });
    }
    let key = |text: &str| AgentSettings { api_key: Some(SecretText(text.to_owned())), ..AgentSettings::default() };
    let resolved = resolve(&AgentSettings::defaults(), &key("global"), &key("tenant"), None);
    assert_eq!(resolved.api_key, SettingValue { value: Some(SecretText("tenant".to_owned())), origin: Origin::Config });
}

#[test]
fn seeding_fills_what_is_empty_and_overwrites_only_when_it_may() {
    // RNCC-45
    let seed = AgentSettings {
        api_key: Some(SecretText("seed".to_owned())),
        ..good(&json!({"model": "seed", "temperature": 1, "max_input_chars": 10}))
    };
    let before =
        AgentSettings { api_key: Some(SecretText("own".to_owned())), ..good(&json!({"model": "own", "top_p": 1})) };
    let mut filled = before.clone();
    assert_eq!(filled.fill(&seed, Fill::Empty), ["temperature", "max_input_chars"]);
    let expected = good(&json!({"model": "own", "top_p": 1, "temperature": 1, "max_input_chars": 10}));
    assert_eq!(filled, AgentSettings { api_key: before.api_key.clone(), ..expected });
    assert_eq!(filled.fill(&seed, Fill::Overwrite), ["model"]);
    assert_eq!((filled.api_key.clone(), filled.model.as_deref()), (before.api_key, Some("seed")));
    assert_eq!(filled.fill(&seed, Fill::Overwrite), [""; 0]);
}

proptest! {
    #[test]
    fn what_was_written_reads_back(
        prompt in proptest::option::of("[^\0]{0,40}"), temperature in proptest::option::of(0.0..=2.0f64),
        timeout_ms in proptest::option::of(1_000u64..=3_600_000), parallel in proptest::option::of(any::<bool>()),
        messages in proptest::option::of(0u64..=10_000),
    ) {
        let settings = AgentSettings {
            system_prompt: prompt.filter(|prompt| !prompt.trim().is_empty()),
            temperature,
            request_timeout: timeout_ms.map(Duration::from_millis),
            parallel_tool_calls: parallel,
            history_max_messages: messages,
            ..AgentSettings::default()
        };
        prop_assert_eq!(AgentSettings::from_values(settings.values().raw()), Ok(settings));
    }
}
