//! The configuration as a whole: layers, faults, checks across keys.

mod access;
mod console_oidc;
mod mcp;

use std::time::Duration;

use amalgam_models::{Dialect, UpstreamKind};
use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::keys::KEYS;
use super::schema::Section;
use super::sources::SourceFile;
use super::{Config, DisplayedValue, Flags, KeySetLocation, LoadedConfig, Sources, ValueOrigin};

fn load(text: &str, env: &[(&str, &str)]) -> Result<LoadedConfig, Vec<String>> {
    load_with(Some(text), env, Flags::default())
}

fn load_with(text: Option<&str>, env: &[(&str, &str)], flags: Flags) -> Result<LoadedConfig, Vec<String>> {
    let file = text.map(|text| SourceFile { path: "amalgam.toml".into(), text: text.to_owned() });
    Config::load(&Sources { flags, env: env.iter().copied().collect(), file })
        .map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

fn faults(text: &str) -> Vec<String> {
    load(text, &[]).unwrap_err()
}

const NO_FAULTS: Vec<String> = Vec::new();

#[test]
fn nothing_at_all_gives_the_demo_on_loopback() {
    let config = load_with(None, &[], Flags::default()).unwrap().config;
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.header_timeout, Duration::from_secs(10));
    assert_eq!(config.limits.turn_deadline, Duration::from_secs(600));
    assert_eq!(config.limits.body_bytes, 2 << 20);
    assert_eq!(config.data.to_str(), Some("amalgam-data"));
    assert!(!config.needs_key());
    let [tenant] = config.tenants.as_slice() else { panic!("{:?}", config.tenants) };
    assert_eq!((tenant.name.as_str(), tenant.id, tenant.state, tenant.declared), ("demo", 1, None, false));
    assert_eq!(config.store.to_string(), "sqlite:amalgam-data/amalgam.db");
    assert_eq!(config.retention.transcripts, Duration::from_secs(30 * 24 * 3600));
    let [upstream] = config.upstreams.as_slice() else { panic!("{:?}", config.upstreams) };
    assert_eq!((upstream.name.as_str(), upstream.kind.name()), ("demo", "demo"));
}

#[test]
fn flags_cover_the_environment_which_covers_the_file_which_covers_the_defaults() {
    let text = "[server]\nlisten = \"127.0.0.1:1\"\nmax_connections = 1\n\n[limits]\ntools = 1";
    let env = [("AMALGAM_LISTEN", "127.0.0.1:2"), ("AMALGAM_SERVER_MAX_CONNECTIONS", "2")];
    let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    let loaded = load_with(Some(text), &env, flags).unwrap();
    let shown = |key: &str| {
        let setting = loaded.settings.iter().find(|setting| setting.key == key).unwrap();
        let DisplayedValue::Value(value) = &setting.value else { panic!("{key} is not set") };
        (value.to_string(), setting.origin.to_string())
    };
    assert_eq!(shown("server.listen"), ("\"127.0.0.1:3\"".to_owned(), "--listen".to_owned()));
    assert_eq!(shown("server.max_connections"), ("2".to_owned(), "AMALGAM_SERVER_MAX_CONNECTIONS".to_owned()));
    assert_eq!(shown("limits.tools"), ("1".to_owned(), "amalgam.toml:6".to_owned()));
    assert_eq!(shown("limits.keepalive"), ("\"10s\"".to_owned(), "default".to_owned()));
    assert_eq!(loaded.config.server.listen.to_string(), "127.0.0.1:3");
}

#[test]
fn every_key_of_the_list_is_read_for_some_entry() {
    let text = "
        [upstreams.a]\nkind = 'responses'\nbase_url = 'http://127.0.0.1/v1'
        [upstreams.b]\nkind = 'chat'\nbase_url = 'http://127.0.0.1/v1'
        [upstreams.c]\nkind = 'anthropic'\nbase_url = 'http://127.0.0.1/v1'
        [upstreams.d]\nkind = 'demo'
        [models.m]\nupstream = 'd'
        [mcp.p]\ncommand = 'true'
        [mcp.u]\nurl = 'http://127.0.0.1/mcp'";
    let settings = load(text, &[]).unwrap().settings;
    for key in KEYS {
        let seen = settings.iter().any(|setting| {
            let is_named = setting.key == key.name || setting.key.ends_with(&format!(".{}", key.name));
            is_named && setting.key.starts_with(key.section.name())
        });
        assert!(seen, "{:?} {}", key.section, key.name);
    }
}

#[test]
fn all_faults_of_a_file_are_told_with_their_line_and_the_nearest_good_key() {
    let text = "\
[server]
lisen = \"127.0.0.1:1\"
header_timeout = \"10 parsecs\"
body_timeout = 15
max_in_flight = 3

[upstream.x]
kind = \"chat\"

[upstreams.openai]
kind = \"responses\"
base_ulr = \"https://api.openai.com/v1\"
retries = 7

[upstreams.claude]
kind = \"antropic\"

[limits]
body_bytes = \"2M\"
tools = \"many\"
";
    let expected = [
        "amalgam.toml:2: unknown key 'lisen' in [server]; did you mean 'listen'?",
        "amalgam.toml:3: header_timeout in [server]: expected a duration such as \"10s\", \"10m\" or \"250ms\", found '10 parsecs'",
        "amalgam.toml:4: body_timeout in [server]: expected a duration such as \"10s\", \"10m\" or \"250ms\", found the number 15",
        "amalgam.toml:5: unknown key 'max_in_flight' in [server]; it belongs in [limits]",
        "amalgam.toml:7: unknown section [upstream]; did you mean 'upstreams'?",
        "amalgam.toml:10: [upstreams.openai] needs 'base_url'",
        "amalgam.toml:12: unknown key 'base_ulr' in [upstreams.openai]; did you mean 'base_url'?",
        "amalgam.toml:13: retries in [upstreams.openai]: expected a whole number from 0 to 2, found the number 7",
        "amalgam.toml:16: kind in [upstreams.claude]: 'antropic' is none of responses, chat, anthropic, demo; did you mean 'anthropic'?",
        "amalgam.toml:19: body_bytes in [limits]: expected a size such as \"2MiB\" or \"500KB\", found '2M'",
        "amalgam.toml:20: tools in [limits]: expected a whole number from 0 to 10000, found 'many'",
    ];
    assert_eq!(faults(text), expected);
}

#[test]
fn keys_outside_of_a_section_are_shown_where_they_belong() {
    assert_eq!(
        faults("listen = 'x'\ndata = 'x'\nserver = 1\nnonsense = 1\nupstreams.kind = 'chat'\n"),
        [
            "amalgam.toml:1: unknown key 'listen' outside of any section; it belongs in [server]",
            "amalgam.toml:2: unknown key 'data' outside of any section; it is not set in the file but with AMALGAM_DATA",
            "amalgam.toml:3: [server] is a table, found an integer",
            "amalgam.toml:4: unknown key 'nonsense' outside of any section",
            "amalgam.toml:5: 'kind' belongs to an entry, as in [upstreams.NAME]",
        ]
    );
}

// P12
#[test]
fn text_that_is_not_toml_is_told_by_line_without_repeating_it() {
    let faults = faults("[upstreams.x]\napi_key = \"hush-hush\n\n[server\nlisten = 1");
    assert!(faults.iter().any(|fault| fault.starts_with("amalgam.toml:2: not valid TOML: ")), "{faults:?}");
    assert!(faults.iter().any(|fault| fault.starts_with("amalgam.toml:4: not valid TOML: ")), "{faults:?}");
    assert!(!faults.iter().any(|fault| fault.contains("hush")), "{faults:?}");
}

// P12
#[test]
fn no_fault_warning_setting_or_debug_text_repeats_a_secret() {
    let bad = "
        [tenants.a]\nid = 1\nkeys = ['hush one', 'hush\\ttwo', ['hush']]
        [upstreams.x]\nkind = 'chat'\nbase_url = 'https://me:hush@host/v1?token=hush'\napi_key = ['hush']
        headers = { 'x-a' = ['hush'], 'x b' = 'hush' }";
    let all = faults(bad).join("\n");
    assert!(!all.contains("hush"), "{all}");
    assert!(all.contains("user or password"), "{all}");

    let good = "
        [tenants.a]\nid = 1\nkeys = ['hush-one', 'env:KEY']
        [upstreams.x]\nkind = 'chat'\nbase_url = 'http://host/v1'\napi_key = 'hush-two'\nheaders = { 'x-a' = 'hush' }";
    let env = [("KEY", "hush-three"), ("AMALGAM_SECRET_KEY", "hush-4"), ("AMALGAM_BOOTSTRAP_KEY", "hush-5")];
    let loaded = load(good, &env).unwrap();
    assert_eq!(loaded.config.tenants[0].keys.len(), 2);
    let all = format!("{loaded:?} {loaded:#?}");
    assert!(!all.contains("hush"), "{all}");
}

#[test]
fn keys_of_another_kind_of_upstream_are_refused() {
    let text =
        "[upstreams.claude]\nkind = 'anthropic'\nbase_url = 'https://x/v1'\ntool_calls = 'native'\npace = '1s'\n";
    assert_eq!(
        faults(text),
        [
            "amalgam.toml:4: 'tool_calls' is for upstreams of kind chat; [upstreams.claude] is of kind anthropic",
            "amalgam.toml:5: 'pace' is for upstreams of kind demo; [upstreams.claude] is of kind anthropic",
        ]
    );
}

#[test]
fn models_name_upstreams_that_exist_and_fall_back_to_names_that_an_upstream_serves() {
    let text = "\
[upstreams.openai]
kind = 'responses'
base_url = 'https://x/v1'
models = ['gpt-4o-mini']
[models.a]
upstream = 'opnai'
[models.b]
upstream = 'openai'
fallback = [
  'a', 'gpt-4o-mini', 'openai/anything',
  'gpt-4o-mimi',
]
";
    assert_eq!(
        faults(text),
        [
            "amalgam.toml:6: [models.a] names the upstream 'opnai', which is not defined; did you mean 'openai'?",
            "amalgam.toml:11: [models.b] falls back to 'gpt-4o-mimi', which no upstream serves; did you mean 'gpt-4o-mini'?",
        ]
    );
}

#[test]
fn a_fallback_that_an_upstream_without_a_list_may_serve_is_a_warning() {
    let text =
        "[upstreams.o]\nkind = 'chat'\nbase_url = 'https://x/v1'\n[models.a]\nupstream = 'o'\nfallback = ['other']";
    let loaded = load(text, &[]).unwrap();
    assert_eq!(loaded.warnings, ["amalgam.toml:6: [models.a] falls back to 'other', which only o could serve"]);
}

#[test]
fn circles_of_fallbacks_are_refused_each_once() {
    let text = "\
[models.a]\nupstream = 'demo'\nfallback = ['b']
[models.b]\nupstream = 'demo'\nfallback = ['c', 'demo']
[models.c]\nupstream = 'demo'\nfallback = ['a']
[models.d]\nupstream = 'demo'\nfallback = ['d']
[models.e]\nupstream = 'demo'\nfallback = ['a']
";
    assert_eq!(
        faults(text),
        [
            "amalgam.toml:9: the fallback goes round in a circle: a -> b -> c -> a",
            "amalgam.toml:12: the fallback goes round in a circle: d -> d",
        ]
    );
}

#[test]
fn a_chain_of_fallbacks_as_long_as_a_file_allows_is_walked() {
    let links = 5_000;
    let mut text: String =
        (1..links).map(|i| format!("[models.m{i}]\nupstream = 'demo'\nfallback = ['m{}']\n", i - 1)).collect();
    text.push_str("[models.m0]\nupstream = 'demo'\n");
    assert_eq!(load(&text, &[]).unwrap().config.models.len(), links);
}

#[test]
fn variables_reach_entries_of_the_file_and_make_new_ones() {
    let text = "[upstreams.my-llm]\nkind = 'chat'\nbase_url = 'https://x/v1'\n";
    let env = [
        ("AMALGAM_UPSTREAMS_MY_LLM_BASE_URL", "https://y/v1"),
        ("AMALGAM_UPSTREAMS_MY_LLM_MODELS", "a, b"),
        ("AMALGAM_UPSTREAMS_MY_LLM_HEADERS", "x-one=1,x-two=env:TWO"),
        ("AMALGAM_UPSTREAMS_MY_LLM_STREAM_USAGE", "false"),
        ("AMALGAM_UPSTREAMS_SECOND_ONE_KIND", "responses"),
        ("AMALGAM_UPSTREAMS_SECOND_ONE_BASE_URL", "https://z/v1"),
        ("AMALGAM_UPSTREAMS_SECOND_ONE_DIALECT", "agn003"),
        ("AMALGAM_UPSTREAMS_SECOND_ONE_MODELS", "[\"c,d\"]"),
        ("AMALGAM_LIMITS_BODY_BYTES", ""),
        ("TWO", "2"),
    ];
    let loaded = load(text, &env).unwrap();
    assert_eq!(loaded.warnings, NO_FAULTS);
    let [first, second] = loaded.config.upstreams.as_slice() else { panic!("{:?}", loaded.config.upstreams) };
    let remote = first.remote.as_ref().unwrap();
    assert_eq!(
        (remote.base_url.as_str(), remote.models.as_slice()),
        ("https://y/v1", &["a".to_owned(), "b".to_owned()][..])
    );
    assert_eq!(remote.headers["x-two"].value().unwrap().expose_secret(), "2");
    assert!(matches!(first.kind, UpstreamKind::Chat { stream_usage: false, .. }));
    assert_eq!(second.name, "second_one");
    assert!(matches!(second.kind, UpstreamKind::Responses { dialect: Dialect::Agn003, .. }));
    assert_eq!(second.remote.as_ref().unwrap().models, ["c,d"]);
    assert_eq!(loaded.config.limits.body_bytes, 2 << 20, "a variable that is set to nothing is not set");
}

#[test]
fn faults_of_variables_name_the_variable() {
    let text = "[upstreams.openai]\nkind = 'responses'\nbase_url = 'https://x/v1'\n[upstreams.a-b]\nkind = 'demo'\n[upstreams.a_b]\nkind = 'demo'";
    let env = [
        ("AMALGAM_UPSTREAMS_OPNAI_BASE_URL", "https://y/v1"),
        ("AMALGAM_UPSTREAMS_A_B_PACE", "1s"),
        ("AMALGAM_SERVER_HEADER_TIMEOUT", "soon"),
        ("AMALGAM_LIMITS_TOOLS", "-1"),
        ("AMALGAM_LISTEN", "here"),
        ("AMALGAM_LOG", "amalgam=loud"),
        ("AMALGAM_SERVER_LISTEN", "127.0.0.1:1"),
    ];
    let faults = load(text, &env).unwrap_err();
    let expected = [
        "AMALGAM_LIMITS_TOOLS: expected a whole number from 0 to 10000, found '-1'",
        "AMALGAM_LISTEN: expected an address with port such as 127.0.0.1:8080, or unix:PATH, found 'here'",
        "AMALGAM_LOG: expected a level or directives such as info,amalgam=debug, found 'amalgam=loud'",
        "AMALGAM_SERVER_HEADER_TIMEOUT: expected a duration such as \"10s\", \"10m\" or \"250ms\", found 'soon'",
        "AMALGAM_SERVER_LISTEN: AMALGAM_LISTEN and AMALGAM_SERVER_LISTEN set the same key; keep one",
        "AMALGAM_UPSTREAMS_A_B_PACE: the name fits several entries of [upstreams]: a-b, a_b",
        "AMALGAM_UPSTREAMS_OPNAI_BASE_URL: [upstreams.opnai] needs 'kind'; did you mean 'openai'?",
    ];
    assert_eq!(faults, expected);
}

#[test]
fn unknown_variables_are_warnings_with_the_nearest_name_unless_a_setting_points_to_them() {
    let text = "[upstreams.openai]\nkind = 'responses'\nbase_url = 'https://x/v1'\napi_key = 'env:AMALGAM_OPENAI'";
    let env = [
        ("AMALGAM_LISTN", "x"),
        ("AMALGAM_UPSTREAMS_OPENAI_BASE_ULR", "x"),
        ("AMALGAM_SOMETHING_ELSE_ALTOGETHER", "x"),
        ("AMALGAM_OPENAI", "the-key"),
        ("OPENAI_API_KEY", "x"),
    ];
    assert_eq!(
        load(text, &env).unwrap().warnings,
        [
            "the variable AMALGAM_LISTN means nothing here; did you mean AMALGAM_LISTEN?",
            "the variable AMALGAM_SOMETHING_ELSE_ALTOGETHER means nothing here",
            "the variable AMALGAM_UPSTREAMS_OPENAI_BASE_ULR means nothing here; did you mean AMALGAM_UPSTREAMS_OPENAI_BASE_URL?",
        ]
    );
}

#[test]
fn upstreams_keep_the_order_of_the_file() {
    let text = "[upstreams.z]\nkind = 'demo'\n[upstreams.a]\nkind = 'demo'\n[upstreams.m]\nkind = 'demo'\n";
    let names: Vec<String> =
        load(text, &[]).unwrap().config.upstreams.into_iter().map(|upstream| upstream.name).collect();
    assert_eq!(names, ["z", "a", "m"]);
}

#[test]
fn addresses_of_upstreams_and_names_of_headers_are_checked() {
    for url in [
        "",
        "host/v1",
        "ftp://host",
        "https://",
        "https://host/v1?x=1",
        "https://host/#x",
        "https://u:p@host",
        "http://ho st",
    ] {
        let text = format!("[upstreams.o]\nkind = 'chat'\nbase_url = '{url}'");
        assert_eq!(faults(&text).len(), 1, "{url}");
    }
    for name in ["Host", "content-length", "Transfer-Encoding", "x y", ""] {
        let text = format!("[upstreams.o]\nkind = 'chat'\nbase_url = 'https://x'\nheaders = {{ '{name}' = 'x' }}");
        assert_eq!(faults(&text).len(), 1, "{name}");
    }
}

#[test]
fn lines_are_counted_in_files_from_any_system() {
    for (text, line) in [("\r\n\r\nx = 1", 3), ("\u{feff}\nx = 1", 2), ("# é\n\n\nx = 1\n", 4)] {
        let fault = load(text, &[]).unwrap_err();
        assert!(fault[0].starts_with(&format!("amalgam.toml:{line}: ")), "{fault:?}");
    }
}

#[test]
fn nesting_without_end_is_refused() {
    for text in ["x = ".to_owned() + &"[".repeat(100_000), "a.".repeat(50_000) + "a = 1", "[a]\n".repeat(1000)] {
        assert!(load(&text, &[]).is_err());
    }
}

/// Text that looks like a configuration, which plain noise never does.
fn nearly_a_configuration() -> impl Strategy<Value = String> {
    let names: Vec<&str> = KEYS.iter().map(|key| key.name).chain(["", "x", "\"é\"", "a.b"]).collect();
    let sections: Vec<&str> = Section::FILE_SECTIONS.iter().map(|section| section.name()).collect();
    let value = prop_oneof![
        Just("[]".to_owned()),
        Just("{ a = 1, \"b\" = [\"env:X\"] }".to_owned()),
        Just("1979-05-27".to_owned()),
        "-?[0-9]{1,25}".prop_map(|number| number),
        "-?[0-9]{1,3}\\.[0-9]".prop_map(|number| number),
        "\\PC{0,12}".prop_map(|text| format!("{text:?}")),
        proptest::sample::select(vec![
            "responses",
            "chat",
            "anthropic",
            "demo",
            "10s",
            "2MiB",
            "127.0.0.1:1",
            "https://x"
        ])
        .prop_map(|text| format!("\"{text}\"")),
        proptest::collection::vec("[a-c]{1}", 0..4).prop_map(|names| format!("{names:?}")),
        any::<bool>().prop_map(|value| value.to_string()),
    ];
    let line = prop_oneof![
        4 => (proptest::sample::select(names), value).prop_map(|(name, value)| format!("{name} = {value}")),
        2 => (proptest::sample::select(sections), "(\\.[a-c])?").prop_map(|(section, entry)| format!("[{section}{entry}]")),
        1 => "\\PC{0,20}".prop_map(|text| text),
    ];
    proptest::collection::vec(line, 0..30).prop_map(|lines| lines.join("\n"))
}

fn never_panics_and_tells_lines(text: &str) -> Result<(), TestCaseError> {
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let file = SourceFile { path: "f".into(), text: text.to_owned() };
    if let Err(faults) = Config::load(&Sources { file: Some(file), ..Sources::default() }) {
        for fault in faults.iter() {
            let ValueOrigin::File { line, .. } = fault.origin else {
                return Err(TestCaseError::fail(fault.to_string()));
            };
            prop_assert!((1..=lines).contains(&line), "{fault}");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in "(\\PC|\n|\t|\r|\u{0}){0,200}") {
        never_panics_and_tells_lines(&text)?;
    }

    #[test]
    fn nothing_that_looks_like_a_configuration_makes_reading_panic(text in nearly_a_configuration()) {
        never_panics_and_tells_lines(&text)?;
    }

    #[test]
    fn no_value_of_a_variable_makes_reading_panic(index in 0..KEYS.len(), text in "\\PC{0,40}") {
        let variable = KEYS[index].variables(Some("X")).remove(0);
        let env = [(variable.as_str(), text.as_str())].into_iter().collect();
        let _ = Config::load(&Sources { env, ..Sources::default() });
    }
}
