//! Rules of the repository, checked by reading manifests, `cargo metadata` and sources: which crate may depend on which, how
//! large a crate may be, that commands do not use the HTTP crate, that every crate takes lints and dependencies from the
//! workspace, that dependencies have allowed licences, that lock files name no registry, that no two public types share a name, and that the walks of the
//! architecture document stay short.

mod licences;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use toml::Table;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What each crate may build on. Rules on one side, implementations on the other, joined in the binary; a new crate
/// needs a line here.
const MAY_KNOW: [(&str, &[&str]); 29] = [
    ("protocol", &[]),
    ("logs", &[]),
    ("summary", &["protocol"]),
    ("core", &["protocol", "summary"]),
    ("emitter", &["protocol", "core"]),
    ("knowledge", &["protocol", "core"]),
    ("assistant", &["protocol", "core", "knowledge"]),
    ("execute", &["protocol", "core", "knowledge"]),
    ("chat-completions", &["protocol", "core"]),
    ("messages", &["protocol", "core"]),
    ("tokens", &["protocol", "core"]),
    ("samples", &[]),
    ("engine", &["protocol", "core", "emitter"]),
    ("app", &["protocol", "core", "emitter", "knowledge", "assistant", "execute", "chat-completions", "engine"]),
    ("administration", &["protocol", "core", "tokens", "assistant", "execute", "app"]),
    ("pages", &[]),
    ("listener", &["core"]),
    ("oidc", &["core"]),
    (
        "server",
        &[
            "protocol",
            "core",
            "knowledge",
            "assistant",
            "execute",
            "chat-completions",
            "messages",
            "engine",
            "app",
            "administration",
            "listener",
            "oidc",
            "pages",
        ],
    ),
    // The dialect `agn003` composes requests by the rules of the strict contract.
    ("models", &["protocol", "core", "execute", "samples", "tokens"]),
    ("tools", &["protocol", "core", "knowledge", "assistant"]),
    ("telemetry", &["protocol", "core"]),
    ("configuration", &["core", "assistant", "execute", "administration", "models", "tools"]),
    ("store", &["protocol", "core", "knowledge"]),
    ("store-sqlite", &["protocol", "core", "store"]),
    ("store-postgres", &["protocol", "core", "store"]),
    (
        "amalgam",
        &[
            "protocol",
            "logs",
            "configuration",
            "core",
            "knowledge",
            "assistant",
            "execute",
            "engine",
            "app",
            "administration",
            "server",
            "models",
            "tools",
            "store",
            "store-sqlite",
            "store-postgres",
            "oidc",
            "telemetry",
        ],
    ),
    // What checks the wire shares nothing with what writes it.
    ("testkit", &[]),
    ("bench", &[]),
];

/// The crates of rules: plain data and functions.
const PURE: [&str; 11] = [
    "protocol",
    "summary",
    "core",
    "emitter",
    "knowledge",
    "assistant",
    "execute",
    "chat-completions",
    "messages",
    "samples",
    "tokens",
];

/// Tests that need a crate beside theirs: turns are stored in a real store, every store passes the same contract tests,
/// and decoded model events are checked as the events that they become.
const TESTS_WITH: [(&str, &str); 7] = [
    ("engine", "store-sqlite"),
    ("store", "store-sqlite"),
    ("store", "store-postgres"),
    ("models", "emitter"),
    ("server", "emitter"),
    ("chat-completions", "emitter"),
    ("messages", "emitter"),
];

/// The most lines of one crate and of one file, without tests.
const MOST_SOURCE_LINES: usize = 12_000;
const MOST_LINES_OF_A_FILE: usize = 600;

/// What would bring waiting, sockets, clocks or databases into the pure crates.
const IMPURE: [&str; 12] = [
    "tokio",
    "hyper",
    "hyper-util",
    "hyper-rustls",
    "axum",
    "tower",
    "futures-util",
    "tracing",
    "rusqlite",
    "tokio-postgres",
    "deadpool-postgres",
    "jiff",
];

#[test]
fn dependencies_point_one_way_and_meet_only_in_the_binary() {
    assert_eq!(direction_violations(&metadata(&["--no-deps"])), [""; 0]);
}

#[test]
fn a_dependency_against_the_direction_is_found() {
    let package = |name: &str, dependency: Value| json!({"packages": [{"name": name, "dependencies": [dependency]}]});
    let cases = [
        (package("amalgam-engine", json!({"name": "amalgam-models", "kind": null})), "engine builds on models"),
        (package("amalgam-models", json!({"name": "amalgam-engine", "kind": "dev"})), "models tests with engine"),
        (package("amalgam", json!({"name": "amalgam-testkit", "kind": null})), "amalgam builds on testkit"),
        (package("amalgam-core", json!({"name": "amalgam-execute", "kind": null})), "core builds on execute"),
        (package("amalgam-execute", json!({"name": "jiff", "kind": null})), "execute is pure and builds on jiff"),
        (package("amalgam-core", json!({"name": "tokio", "kind": null})), "core is pure and builds on tokio"),
        (package("amalgam-new", json!({"name": "bytes", "kind": null})), "new has no place in MAY_KNOW"),
    ];
    for (metadata, expected) in cases {
        assert_eq!(direction_violations(&metadata), [expected]);
    }
    let allowed = package("amalgam-models", json!({"name": "amalgam-testkit", "kind": "dev"}));
    assert_eq!(direction_violations(&allowed), [""; 0]);
}

/// The files of the binary that join, describe and serve the HTTP interface. Commands use the application layer instead.
const HTTP_FILES: [&str; 6] = [
    "cmd/openapi.rs",
    "cmd/serve.rs",
    "cmd/serve/certificates.rs",
    "cmd/serve/sockets.rs",
    "wire_up.rs",
    "wire_up/live_parts.rs",
];

#[test]
fn only_the_commands_that_serve_and_describe_http_use_its_crate() {
    let folder = Path::new(ROOT).join("crates/amalgam/src");
    let mut files: Vec<String> = files_where(&|name| name.ends_with(".rs"), &folder)
        .iter()
        .filter(|path| read(path).contains("amalgam_server"))
        .map(|path| path.strip_prefix(&folder).expect("the file is in the folder").display().to_string())
        .collect();
    files.sort();
    assert_eq!(files, HTTP_FILES, "see crates/administration");
}

#[test]
fn every_crate_takes_lints_and_dependencies_from_the_workspace() {
    let violations: Vec<String> = manifests()
        .iter()
        .flat_map(|path| {
            let manifest: Table = read(path).parse().expect("cargo reads this manifest too");
            manifest_violations(&manifest).into_iter().map(|what| format!("{}: {what}", path.display()))
        })
        .collect();
    assert_eq!(violations, [""; 0]);
}

#[test]
fn a_manifest_that_goes_its_own_way_is_found() {
    let manifest = "
        [package]
        name = 'amalgam-new'
        version = '1.0.0'
        edition.workspace = true
        rust-version.workspace = true
        license.workspace = true
        publish.workspace = true
        [lints.rust]
        unsafe_code = 'allow'
        [dependencies]
        bytes = '1'
        http.workspace = true
        [dev-dependencies]
        tempfile = { workspace = true, git = 'https://example.org/tempfile' }
        [target.'cfg(unix)'.build-dependencies]
        cc = { version = '1', features = ['parallel'] }
    ";
    assert_eq!(
        manifest_violations(&manifest.parse().expect("the manifest is TOML")),
        [
            "`package.version` is not the workspace's",
            "`lints` are not the workspace's",
            "`bytes` does not come from the workspace",
            "`tempfile` does not come from the workspace",
            "`cc` does not come from the workspace",
        ]
    );
}

#[test]
fn no_crate_and_no_file_has_more_source_lines_than_a_reader_can_hold() {
    let crates = fs::read_dir(Path::new(ROOT).join("crates")).expect("the crates can be listed");
    for folder in crates.map(|entry| entry.expect("entries of the tree can be read").path()) {
        // What only tests compile is in files and folders called so.
        let is_source = |name: &str| name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "testing.rs";
        let files = files_where(&is_source, &folder.join("src"));
        let is_for_tests =
            |part: std::path::Component<'_>| part.as_os_str() == "testing" || part.as_os_str() == "tests";
        let inside = |path: &Path| path.strip_prefix(&folder).unwrap_or(path).components().any(is_for_tests);
        let files = files.iter().filter(|path| !inside(path));
        let lines: Vec<(usize, &PathBuf)> = files.map(|path| (source_lines(&read(path)), path)).collect();
        for (lines, path) in &lines {
            assert!(*lines < MOST_LINES_OF_A_FILE, "{} has {lines} lines", path.display());
        }
        let lines: usize = lines.iter().map(|(lines, _)| lines).sum();
        assert!(lines < MOST_SOURCE_LINES, "{} has {lines} lines", folder.display());
    }
}

/// The lines of a file before its tests, which are at its end.
fn source_lines(text: &str) -> usize {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count()
}

#[test]
fn no_two_public_types_of_the_workspace_share_a_name() {
    let sources: Vec<(String, String)> = fs::read_dir(Path::new(ROOT).join("crates"))
        .expect("the crates can be listed")
        .map(|entry| entry.expect("entries of the tree can be read").path().join("src"))
        .flat_map(|folder| files_where(&|name| name.ends_with(".rs"), &folder))
        .map(|path| (path.display().to_string(), read(&path)))
        .collect();
    assert!(sources.len() > 300, "the sources of all crates are found");
    assert_eq!(shared_type_names(&sources), [""; 0]);
}

#[test]
fn a_name_that_two_public_types_share_is_found() {
    let source = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let sources = [
        source("a.rs", "pub struct Limits {\n}\npub(crate) struct Options;\npub enum Kind<'a> {}\nstruct Entry;"),
        source("c.rs", "pub struct $kind(Sql);\npub struct $name;"),
        source("b.rs", "mod inner {\n    pub type Limits = u8;\n}\npub struct Options;\n/// pub struct Kind\n"),
    ];
    assert_eq!(shared_type_names(&sources), ["Limits: a.rs, b.rs"]);
}

/// Names that more than one public struct, enum, trait or type alias has, with the files that define them.
fn shared_type_names(sources: &[(String, String)]) -> Vec<String> {
    let mut definitions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in sources {
        for line in text.lines() {
            let mut words = line.trim_start().split(|c: char| !(c.is_alphanumeric() || c == '_'));
            if words.next() == Some("pub")
                && let Some("struct" | "enum" | "trait" | "type") = words.next()
                && let Some(name) = words.next()
                // A macro names its types where it is used.
                && !name.is_empty()
            {
                definitions.entry(name).or_default().push(path);
            }
        }
    }
    let shared = definitions.into_iter().filter(|(_, paths)| paths.len() > 1);
    shared.map(|(name, paths)| format!("{name}: {}", paths.join(", "))).collect()
}

/// The most steps of a walk in the architecture document, the most files that it names, and the most steps that name one file.
const WALK_STEPS: usize = 12;
const WALK_FILES: usize = 35;
const STEPS_WITH_ONE_FILE: usize = 3;

#[test]
fn the_walks_of_the_architecture_document_are_short_and_name_files_that_exist() {
    let document = read(&Path::new(ROOT).join("docs/ARCHITECTURE.md"));
    let walks = walks(&document);
    assert_eq!(walks.len(), 3, "a streamed request, an assistant turn, a continuation");
    for walk in &walks {
        assert_eq!(walk_violations(walk, &|path| Path::new(ROOT).join(path).is_file()), [""; 0], "{}", walk.title);
    }
}

#[test]
fn a_walk_that_is_too_long_or_names_a_missing_file_is_found() {
    let step =
        |number: usize, files: &str| format!("{number}. **Step.** A function ({files})\n   and `turns::begin`.\n");
    let violations = |text: String| {
        let document = format!("## Walk 1: a request\n\n`POST /x`.\n\n{text}\n## Next\n\n1. `a/missing.rs`\n");
        walk_violations(&walks(&document)[0], &|path| !path.contains("missing"))
    };
    assert_eq!(violations(step(1, "`a/b.rs`, `a/c/d.rs`")), [""; 0]);
    assert_eq!(violations(step(1, "`a/missing.rs`")), ["there is no file crates/a/src/missing.rs"]);
    assert_eq!(violations(step(1, "`b.rs`")), ["`b.rs` has no crate"]);
    assert_eq!(violations(String::new()), ["it has no steps"]);
    let steps: String = (1..=13).map(|number| step(number, "`a/b.rs`")).collect();
    assert_eq!(violations(steps), ["13 steps", "crates/a/src/b.rs is in 13 steps"]);
    let files: Vec<String> = (0..36).map(|number| format!("`a/f{number}.rs`")).collect();
    assert_eq!(violations(step(1, &files.join(", "))), ["36 files"]);
}

/// A request followed through the code.
struct Walk<'a> {
    title: &'a str,
    /// Its numbered steps, and the text after them.
    steps: Vec<String>,
    text: String,
}

/// The sections `## Walk …` of a document.
fn walks(document: &str) -> Vec<Walk<'_>> {
    let sections = document.split("\n## ").map(|section| section.strip_prefix("## ").unwrap_or(section));
    let walks = sections.filter(|section| section.starts_with("Walk "));
    let read = walks.map(|section| {
        let (title, body) = section.split_once('\n').expect("a section has a body");
        let mut steps: Vec<String> = Vec::new();
        for line in body.lines() {
            let number = line.split_once(". ").and_then(|(number, _)| number.parse::<usize>().ok());
            match (number, steps.last_mut()) {
                (Some(number), _) => {
                    assert_eq!(number, steps.len() + 1, "{title}: the steps are numbered");
                    steps.push(line.to_owned());
                }
                (None, Some(step)) if line.starts_with(' ') => step.push_str(line),
                _ => {}
            }
        }
        Walk { title, steps, text: body.to_owned() }
    });
    read.collect()
}

fn walk_violations(walk: &Walk<'_>, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut violations = Vec::new();
    match walk.steps.len() {
        0 => violations.push("it has no steps".to_owned()),
        steps if steps > WALK_STEPS => violations.push(format!("{steps} steps")),
        _ => {}
    }
    let named = files_named(&walk.text);
    if named.len() > WALK_FILES {
        violations.push(format!("{} files", named.len()));
    }
    for name in named {
        let Some((package, path)) = name.split_once('/') else {
            violations.push(format!("`{name}` has no crate"));
            continue;
        };
        let path = format!("crates/{package}/src/{path}");
        if !exists(&path) {
            violations.push(format!("there is no file {path}"));
        }
        let steps = walk.steps.iter().filter(|step| files_named(step).contains(name)).count();
        if steps > STEPS_WITH_ONE_FILE {
            violations.push(format!("{path} is in {steps} steps"));
        }
    }
    violations
}

/// The Rust files that a text names as code.
fn files_named(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).filter(|code| code.ends_with(".rs")).collect()
}

#[test]
fn lock_files_of_node_packages_name_no_registry() {
    let locks = files_where(&|name| name == "package-lock.json", Path::new(ROOT));
    assert!(!locks.is_empty(), "the tests with real clients have a lock file");
    let naming: Vec<_> = locks.iter().filter(|path| read(path).contains("\"resolved\"")).collect();
    assert!(naming.is_empty(), "{naming:?} contain `resolved`; see omit-lockfile-registry-resolved in .npmrc");
}

#[test]
fn what_is_banned_is_not_in_the_dependency_tree() {
    // S13, S20: `cargo deny` checks more, where it is installed.
    let (deny, lock) = (table("deny.toml"), table("Cargo.lock"));
    assert_eq!(banned(&deny, &lock), [""; 0]);

    let lock = "package = [{ name = 'openssl', version = '0.10.0' }, { name = 'h2', version = '0.4.15' },
        { name = 'time', version = '0.3.47' }, { name = 'tracing-subscriber', version = '0.3.9' }]";
    let lock = lock.parse().expect("the lock is TOML");
    assert_eq!(banned(&deny, &lock), ["openssl 0.10.0", "h2 0.4.15", "tracing-subscriber 0.3.9"]);
}

/// The packages that `deny.toml` does not want: by name, or below a version.
fn banned(deny: &Table, lock: &Table) -> Vec<String> {
    let text =
        |table: &toml::Value, key: &str| table.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    let bans: Vec<String> = list(&deny["bans"], "deny").map(|ban| text(ban, "crate")).collect();
    assert!(bans.len() > 4, "deny.toml lists what is banned");
    let is_banned = |name: &str, version: &str| {
        bans.iter().any(|ban| match ban.split_once(":<") {
            None => ban == name,
            Some((banned, floor)) => banned == name && numbers(version) < numbers(floor),
        })
    };
    let packages = list(&lock["package"], "").map(|package| (text(package, "name"), text(package, "version")));
    packages
        .filter(|(name, version)| is_banned(name, version))
        .map(|(name, version)| format!("{name} {version}"))
        .collect()
}

/// The elements of an array, or of the one under `key`.
fn list<'a>(value: &'a toml::Value, key: &str) -> impl Iterator<Item = &'a toml::Value> {
    value.get(key).unwrap_or(value).as_array().into_iter().flatten()
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map_while(|number| number.parse().ok()).collect()
}

fn table(name: &str) -> Table {
    read(&Path::new(ROOT).join(name)).parse().expect("the file is TOML")
}

/// A crate's name without the prefix that all of them share.
fn short(package: &str) -> &str {
    package.strip_prefix("amalgam-").unwrap_or(package)
}

fn direction_violations(metadata: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    for package in metadata["packages"].as_array().expect("cargo lists packages") {
        let name = short(package["name"].as_str().expect("a package has a name"));
        let Some((_, may_know)) = MAY_KNOW.iter().find(|(known, _)| *known == name) else {
            violations.push(format!("{name} has no place in MAY_KNOW"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("cargo lists dependencies") {
            let package = dependency["name"].as_str().expect("a dependency has a name");
            let to = short(package);
            let in_tests = dependency["kind"] == "dev";
            let for_tests = in_tests && (to == "testkit" || TESTS_WITH.contains(&(name, to)));
            if package.starts_with("amalgam") && !may_know.contains(&to) && !for_tests {
                let how = if in_tests { "tests with" } else { "builds on" };
                violations.push(format!("{name} {how} {to}"));
            }
            if PURE.contains(&name) && !in_tests && IMPURE.contains(&to) {
                violations.push(format!("{name} is pure and builds on {to}"));
            }
        }
    }
    violations
}

fn manifest_violations(manifest: &Table) -> Vec<String> {
    let mut violations = Vec::new();
    for key in ["version", "edition", "rust-version", "license", "publish"] {
        if !manifest["package"].get(key).is_some_and(inherited) {
            violations.push(format!("`package.{key}` is not the workspace's"));
        }
    }
    if !manifest.get("lints").is_some_and(inherited) {
        violations.push("`lints` are not the workspace's".to_owned());
    }
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
    let tables = [manifest].into_iter().chain(targets.filter_map(|(_, target)| target.as_table()));
    for table in tables {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, dependency) in table.get(section).and_then(toml::Value::as_table).into_iter().flatten() {
                let elsewhere = ["version", "path", "git"].iter().any(|key| dependency.get(key).is_some());
                if !inherited(dependency) || elsewhere {
                    violations.push(format!("`{name}` does not come from the workspace"));
                }
            }
        }
    }
    violations
}

fn inherited(value: &toml::Value) -> bool {
    value.get("workspace").and_then(toml::Value::as_bool) == Some(true)
}

fn metadata(options: &[&str]) -> Value {
    let arguments = ["metadata", "--offline", "--locked", "--format-version", "1"];
    let output =
        Command::new(env!("CARGO")).args(arguments).args(options).current_dir(ROOT).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// The manifests of all members; the root has none of its own.
fn manifests() -> Vec<PathBuf> {
    let metadata = metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    assert_eq!(packages.len(), MAY_KNOW.len(), "a crate is in MAY_KNOW and not in the workspace, or the reverse");
    packages.iter().map(|package| package["manifest_path"].as_str().expect("a package has a manifest").into()).collect()
}

/// All files with such a name, apart from what tools have put into the tree.
pub(crate) fn files_where(is_wanted: &dyn Fn(&str) -> bool, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("folders of the tree can be read") {
        let entry = entry.expect("entries of the tree can be read");
        let is_folder = entry.file_type().expect("entries have a type").is_dir();
        match entry.file_name().to_str() {
            Some("target" | "node_modules" | ".git" | ".venv") => {}
            _ if is_folder => found.extend(files_where(is_wanted, &entry.path())),
            Some(name) if is_wanted(name) => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("files of the tree are text")
}
