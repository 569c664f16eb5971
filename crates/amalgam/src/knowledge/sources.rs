//! Which files of a folder are imported: source files, but no build output and no hidden files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use ignore::{DirEntry, WalkBuilder};
use sha2::{Digest as _, Sha256};

/// Folders that hold what tools have made, whatever `.gitignore` says.
const BUILT: [&str; 3] = ["node_modules", "target", "__pycache__"];
/// The longest path that is kept.
const PATH_BYTES: usize = 440;
/// How much of a folder's name is in the name of its source.
const NAME_BYTES: usize = 40;

/// Which files of a folder are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// What `.gitignore` and `.ignore` name.
    Ignored,
    /// Nothing but what is hidden or built.
    Nothing,
}

/// Files that were brought in together, and are looked at together next time.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) name: String,
    /// What each file is called in the collection, and the folder that it is so called in.
    pub(crate) files: BTreeMap<String, Arc<Path>>,
    /// These are all files of the source: what the collection has beyond them is gone.
    pub(crate) whole: bool,
    /// What could not be looked into, in words.
    pub(crate) unreadable: Vec<String>,
    /// Files whose names are too long, or not text that can be seen.
    pub(crate) misnamed: u64,
}

/// The sources behind what was named on the command line: a folder is one, and a file is a part of the one that its folder is.
/// With `name` they are all one source of that name.
pub(crate) fn gather(paths: &[PathBuf], name: Option<&str>, rules: Rules) -> anyhow::Result<Vec<Source>> {
    let mut sources: BTreeMap<String, Source> = BTreeMap::new();
    for path in paths {
        let reading = || format!("reading {}", path.display());
        let place = fs::canonicalize(path).with_context(reading)?;
        let is_folder = fs::metadata(&place).with_context(reading)?.is_dir();
        let folder: Arc<Path> = match place.parent() {
            Some(parent) if !is_folder => parent.into(),
            _ => place.as_path().into(),
        };
        let name = name.map_or_else(|| name_of(&folder), str::to_owned);
        let source = sources.entry(name.clone()).or_insert_with(|| Source { name, ..Source::default() });
        match is_folder {
            true => {
                source.whole = true;
                walk(source, &folder, rules)?;
            }
            false => add(source, &folder, &place)?,
        }
    }
    Ok(sources.into_values().collect())
}

/// The same folder has the same name every time, and another folder of that name another one. It shows nothing of where the
/// folder is.
fn name_of(folder: &Path) -> String {
    let plain = |one: char| if one.is_ascii_alphanumeric() || "._-".contains(one) { one } else { '-' };
    let shown = folder.file_name().map(|name| name.to_string_lossy().chars().map(plain).collect::<String>());
    let shown = shown.unwrap_or_default();
    let shown = shown.trim_start_matches(['.', '_', '-']);
    let shown = match shown.get(..shown.len().min(NAME_BYTES)) {
        None | Some("") => "folder",
        Some(shown) => shown,
    };
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    let (short, _) = digest.split_at(4);
    format!("{shown}-{}", amalgam_core::hex(short))
}

fn walk(source: &mut Source, folder: &Arc<Path>, rules: Rules) -> anyhow::Result<()> {
    let follow = rules == Rules::Ignored;
    let walk = WalkBuilder::new(folder)
        .hidden(true)
        .parents(follow)
        .ignore(follow)
        .git_ignore(follow)
        .git_exclude(follow)
        .git_global(false)
        .require_git(false)
        .follow_links(false)
        .filter_entry(|entry| entry.depth() == 0 || !is_built(entry))
        .build();
    for entry in walk {
        match entry {
            // Links are not followed: what they lead to is elsewhere, or is found where it is.
            Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => add(source, folder, entry.path())?,
            Ok(_folder) => {}
            Err(error) => source.unreadable.push(error.to_string()),
        }
    }
    Ok(())
}

fn is_built(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir()) && BUILT.iter().any(|name| entry.file_name() == *name)
}

fn add(source: &mut Source, folder: &Arc<Path>, file: &Path) -> anyhow::Result<()> {
    let relative = file.strip_prefix(folder).unwrap_or(file);
    let parts: Option<Vec<&str>> = relative.iter().map(|part| part.to_str()).collect();
    let fits = |called: &String| called.len() <= PATH_BYTES && !called.contains(char::is_control);
    let Some(called) = parts.map(|parts| parts.join("/")).filter(fits) else {
        source.misnamed += 1;
        return Ok(());
    };
    match source.files.get(&called) {
        Some(other) if other != folder => bail!(
            "{called} is in {} and in {}, which cannot both be the source {}: give each a --source of its own",
            other.display(),
            folder.display(),
            source.name,
        ),
        Some(_) => {}
        None => drop(source.files.insert(called, Arc::clone(folder))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn called(source: &Source) -> Vec<&str> {
        source.files.keys().map(String::as_str).collect()
    }

    #[test]
    fn a_folder_is_everything_in_it_but_what_is_hidden_built_or_ignored() {
        let folder = tree(&[
            (".gitignore", "*.log\n/dist/\n"),
            (".git/config", "x"),
            (".hidden/x.md", "x"),
            (".env", "x"),
            ("README.md", "x"),
            ("a.log", "x"),
            ("dist/x.js", "x"),
            ("src/dist/kept.js", "x"),
            ("src/main.rs", "x"),
            ("src/node_modules/x.js", "x"),
            ("target/debug/x.txt", "x"),
            ("sub/.gitignore", "own.md\n"),
            ("sub/own.md", "x"),
            ("sub/target", "a file of this name is nothing that was built"),
        ]);
        let paths = [folder.path().to_owned()];
        let sources = gather(&paths, None, Rules::Ignored).unwrap();
        let [source] = sources.as_slice() else { panic!("{sources:?}") };
        assert_eq!(called(source), ["README.md", "src/dist/kept.js", "src/main.rs", "sub/target"]);
        assert!(source.whole && source.unreadable.is_empty(), "{source:?}");
        let all = gather(&paths, None, Rules::Nothing).unwrap();
        assert_eq!(
            called(&all[0]),
            ["README.md", "a.log", "dist/x.js", "src/dist/kept.js", "src/main.rs", "sub/own.md", "sub/target"]
        );
        assert_eq!(all[0].name, source.name);
    }

    #[test]
    fn links_are_not_followed_wherever_they_lead() {
        let (folder, elsewhere) = (tree(&[("a.md", "x")]), tree(&[("secret.md", "x")]));
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        link(elsewhere.path(), "folder");
        link(&elsewhere.path().join("secret.md"), "file.md");
        link(folder.path(), "itself");
        let sources = gather(&[folder.path().to_owned()], None, Rules::Ignored).unwrap();
        assert_eq!(called(&sources[0]), ["a.md"]);
    }

    #[test]
    fn a_file_is_a_part_of_the_source_that_its_folder_is() {
        let folder = tree(&[("a.md", "x"), ("b.md", "x")]);
        let file = gather(&[folder.path().join("a.md")], None, Rules::Ignored).unwrap();
        let whole = gather(&[folder.path().to_owned()], None, Rules::Ignored).unwrap();
        assert_eq!((called(&file[0]), file[0].whole), (vec!["a.md"], false));
        assert_eq!((called(&whole[0]), whole[0].whole), (vec!["a.md", "b.md"], true));
        assert_eq!(file[0].name, whole[0].name);
    }

    #[test]
    fn folders_of_one_name_are_sources_of_their_own_unless_they_are_named() {
        let top = tree(&[("one/docs/a.md", "x"), ("two/docs/b.md", "x"), ("three/docs/a.md", "x")]);
        let paths = ["one/docs", "two/docs", "three/docs"].map(|path| top.path().join(path));
        let apart = gather(&paths, None, Rules::Ignored).unwrap();
        assert_eq!(apart.len(), 3);
        assert!(apart.iter().all(|source| source.name.starts_with("docs-") && super::super::is_name(&source.name)));
        let together = gather(&paths[..2], Some("docs"), Rules::Ignored).unwrap();
        assert_eq!(called(&together[0]), ["a.md", "b.md"]);
        let fault = gather(&paths, Some("docs"), Rules::Ignored).unwrap_err().to_string();
        assert!(fault.starts_with("a.md is in "), "{fault}");
    }
}
