//! `amalgam man`: a page for each command.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use amalgam_testkit::binary;

use crate::support::BINARY;

fn pages(folder: &Path) -> BTreeMap<String, String> {
    let output = Command::new(binary(BINARY)).arg("man").arg("--dir").arg(folder).env_clear().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .collect()
}

/// The commands that `--help` of a command lists.
fn commands(of: &[&str]) -> Vec<String> {
    let output = Command::new(binary(BINARY)).args(of).arg("--help").env_clear().output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    let names = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_and_every_command_below_it_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let written = pages(&folder.path().join("new/man"));
    assert!(written["amalgam.1"].contains("amalgam\\-serve(1)"), "{}", written["amalgam.1"]);
    let mut expected = Vec::new();
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        expected.push(format!("{}.1", [&["amalgam"], path.as_slice()].concat().join("-")));
        let below = commands(&path).into_iter();
        open.extend(below.map(|inner| path.iter().copied().map(str::to_owned).chain([inner]).collect()));
    }
    expected.sort();
    assert!(expected.len() > 40, "{expected:?}");
    assert_eq!(written.keys().cloned().collect::<Vec<_>>(), expected);
    let create = &written["amalgam-keys-create.1"];
    assert!(create.contains("\\-\\-tenant") && create.contains(".SH DESCRIPTION"), "{create}");
}

#[test]
fn the_pages_are_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(pages(&folder.path().join("a")), pages(&folder.path().join("b")));
}
