//! Holds `docs/configuration.md` and `amalgam.example.toml` to the list of keys.

use std::fs;
use std::path::{Path, PathBuf};

use super::choices::NamedChoice as _;
use super::keys::KEYS;
use super::schema::{DefaultValue, Key, Section, Shape};
use super::sources::{Environment, Flags, SourceFile, Sources};
use super::units::{duration_to_text, size_to_text};
use super::{Config, DisplayedValue};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// With `UPDATE_DOCS=1` the tables are written anew instead of compared.
#[test]
#[expect(clippy::disallowed_methods, reason = "the switch is for the one who runs the tests")]
fn the_tables_of_the_documentation_say_what_the_list_of_keys_says() {
    let path = root().join("docs/configuration.md");
    let document = fs::read_to_string(&path).unwrap();
    let mut expected = document.clone();
    for section in Section::FILE_SECTIONS.iter().chain([&Section::Process]) {
        let name = if *section == Section::Process { "process" } else { section.name() };
        let (before, rest) = expected.split_once(&format!("<!-- keys: {name} -->\n")).expect(name);
        let (_, after) = rest.split_once("<!-- end of keys -->").expect(name);
        expected = format!("{before}<!-- keys: {name} -->\n{}<!-- end of keys -->{after}", table(*section));
    }
    if std::env::var("UPDATE_DOCS").is_ok() {
        fs::write(&path, &expected).unwrap();
    }
    assert!(
        document == expected || std::env::var("UPDATE_DOCS").is_ok(),
        "docs/configuration.md is behind the keys; run the tests once with UPDATE_DOCS=1. Expected:\n{expected}"
    );
}

/// The page shows the contract to people; what it shows as a configuration has to be one.
#[test]
fn the_examples_of_the_documentation_are_valid() {
    let document = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let examples: Vec<&str> =
        document.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 3, "{}", examples.len());
    for example in examples {
        let env =
            [("ACME_KEY", "a-long-enough-key"), ("OTHER_KEY", "another-long-key"), ("CONSOLE_CLIENT_SECRET", "x")];
        let env = env.into_iter().collect();
        let file = SourceFile { path: "docs/configuration.md".into(), text: example.to_owned() };
        let sources = Sources { flags: Flags::default(), env, file: Some(file) };
        if let Err(faults) = Config::load(&sources) {
            panic!("{faults}\nin:\n{example}");
        }
    }
}

#[test]
fn the_example_file_is_valid_and_as_good_as_the_defaults_and_shows_every_key() {
    let text = fs::read_to_string(root().join("amalgam.example.toml")).unwrap();
    // As it stands it changes nothing: every line is a comment or a default.
    let load = |text: String| {
        let file = SourceFile { path: "amalgam.example.toml".into(), text };
        Config::load(&Sources { file: Some(file), flags: Flags::default(), env: Environment::default() })
    };
    let written = load(text.clone()).unwrap();
    let defaults = Config::load(&Sources::default()).unwrap();
    let values = |settings: &[super::Setting]| -> Vec<(String, DisplayedValue)> {
        settings.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect()
    };
    assert_eq!(values(&written.settings), values(&defaults.settings));
    assert_eq!(written.warnings, Vec::<String>::new());

    // With every commented setting in force it is still a configuration, and no key is left out.
    let uncommented: String = text
        .lines()
        .map(|line| line.strip_prefix("#").filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    for key in KEYS.iter().filter(|key| key.section != Section::Process) {
        assert!(uncommented.lines().any(|line| line.starts_with(&format!("{} = ", key.name))), "{}", key.name);
    }
    let env = [
        ("ACME_KEY", "a-long-enough-key"),
        ("JWT_SECRET", "a-secret-of-more-than-thirty-two-characters"),
        ("OPENAI_API_KEY", "x"),
        ("ANTHROPIC_API_KEY", "x"),
        ("MCP_TOKEN", "x"),
        ("CONSOLE_CLIENT_SECRET", "x"),
    ];
    let file = SourceFile { path: "amalgam.example.toml".into(), text: uncommented };
    let sources = Sources { file: Some(file), flags: Flags::default(), env: env.into_iter().collect() };
    let loaded = Config::load(&sources).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(loaded.warnings, Vec::<String>::new());
}

fn table(section: Section) -> String {
    let kinds = section == Section::Upstreams;
    let first = if section == Section::Process { "variable" } else { "key" };
    let mut rows = vec![
        row([first, "takes", "default", if kinds { "kinds" } else { "" }, "effect"]),
        row(["---", "---", "---", if kinds { "---" } else { "" }, "---"]),
    ];
    rows.extend(section.keys().map(|key| {
        let name = if section == Section::Process { key.variables(None).join(", ") } else { key.name.to_owned() };
        let known_to =
            if key.kinds.is_empty() { "all".to_owned() } else { words(key.kinds.iter().map(|kind| kind.name())) };
        row([&format!("`{name}`"), &takes(key), &default(key), if kinds { &known_to } else { "" }, key.effect])
    }));
    rows.concat()
}

fn row(cells: [&str; 5]) -> String {
    let cells: Vec<&str> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
    format!("| {} |\n", cells.join(" | "))
}

fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn takes(key: &Key) -> String {
    let milliseconds = |ms: u64| duration_to_text(std::time::Duration::from_millis(ms));
    match key.shape {
        Shape::Text => "string".to_owned(),
        Shape::Path => "path".to_owned(),
        Shape::LogFilter => "level or directives".to_owned(),
        Shape::Boolean => "`true`, `false`".to_owned(),
        Shape::DoorLevels => "table of levels".to_owned(),
        Shape::Integer { least, most: i64::MAX } => format!("number from {least}"),
        Shape::Integer { least, most } => format!("number, {least} to {most}"),
        Shape::Decimal { most } => format!("decimal number, 0 to {most}"),
        Shape::Duration { least, most } => format!("duration, {} to {}", milliseconds(least), milliseconds(most)),
        Shape::Size { least, most } => format!("size, {} to {}", size_to_text(least), size_to_text(most)),
        Shape::Listen => "address with port, or `unix:PATH`".to_owned(),
        Shape::Network => "network".to_owned(),
        Shape::Networks => "list of networks".to_owned(),
        Shape::Origin => "origin".to_owned(),
        Shape::Target => "target".to_owned(),
        Shape::Origins => "list of origins".to_owned(),
        Shape::Targets => "list of targets".to_owned(),
        Shape::BaseUrl => "`http` or `https` URL".to_owned(),
        Shape::Url => "`http` or `https` URL".to_owned(),
        Shape::PathOrUrl => "path, or `https` URL".to_owned(),
        Shape::StoreUrl => "database URL".to_owned(),
        Shape::Secret | Shape::Credential => "secret".to_owned(),
        Shape::Secrets => "list of secrets".to_owned(),
        Shape::Headers | Shape::Variables => "table of secrets".to_owned(),
        Shape::Names => "list of names".to_owned(),
        Shape::Roles => "table of scopes".to_owned(),
        Shape::Argument => "string".to_owned(),
        Shape::Arguments => "list of strings".to_owned(),
        Shape::Ids => "list of numbers".to_owned(),
        Shape::Choice(choices) => words(choices.iter().copied()),
        Shape::Choices(choices) => format!("list of {}", words(choices.iter().copied())),
    }
}

fn default(key: &Key) -> String {
    let list = matches!(
        key.shape,
        Shape::Secrets | Shape::Networks | Shape::Origins | Shape::Targets | Shape::Names | Shape::Choices(_)
    );
    match key.preset {
        DefaultValue::Required => "**required**".to_owned(),
        DefaultValue::Unset(meaning) => meaning.to_owned(),
        DefaultValue::Value("") => "empty".to_owned(),
        DefaultValue::Value(text) if list => words(text.split(',')),
        DefaultValue::Value(text) => format!("`{text}`"),
    }
}
