//! Selects the files of a folder to import: source files, but no build output and no hidden files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::{DirEntry, WalkBuilder};
use sha2::{Digest as _, Sha256};

use super::{super::upload::PATH_BYTES, ImportError};

/// Folders of build output, whatever `.gitignore` says.
const BUILD_FOLDERS: [&str; 3] = ["node_modules", "target", "__pycache__"];
/// The part of a folder's name that the name of its source begins with.
const NAME_BYTES: usize = 40;

/// Which files of a folder are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreRules {
    /// Files that `.gitignore` and `.ignore` name.
    Ignored,
    /// Only hidden files and build output.
    Nothing,
}

/// Files that are imported together, and compared together by the next import.
#[derive(Debug, Default)]
pub struct ImportSource {
    /// Its name, by default derived from its folder.
    pub name: String,
    /// The path of each file in the collection, and the folder that the path is relative to.
    pub files: BTreeMap<String, Arc<Path>>,
    /// Whether these are all files of the source, so that other documents of it are deleted.
    pub whole: bool,
    /// Folders that could not be read, each with its reason.
    pub unreadable: Vec<String>,
    /// Files whose names are too long, or not printable text.
    pub misnamed: u64,
}

/// The sources of paths: a folder is one, and a file belongs to the one of its folder. With `name` they are all one source of
/// that name.
pub fn gather_sources(
    paths: &[PathBuf],
    name: Option<&str>,
    rules: IgnoreRules,
) -> Result<Vec<ImportSource>, ImportError> {
    let mut sources: BTreeMap<String, ImportSource> = BTreeMap::new();
    for path in paths {
        let unreadable = |error| ImportError::Unreadable(path.clone(), error);
        let place = fs::canonicalize(path).map_err(unreadable)?;
        let is_folder = fs::metadata(&place).map_err(unreadable)?.is_dir();
        let folder: Arc<Path> = match place.parent() {
            Some(parent) if !is_folder => parent.into(),
            _ => place.as_path().into(),
        };
        let name = name.map_or_else(|| name_of(&folder), str::to_owned);
        let source = sources.entry(name.clone()).or_insert_with(|| ImportSource { name, ..ImportSource::default() });
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

/// The default name of a source: stable for a folder, different for another folder of the same name, and without its path.
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

fn walk(source: &mut ImportSource, folder: &Arc<Path>, rules: IgnoreRules) -> Result<(), ImportError> {
    let follow = rules == IgnoreRules::Ignored;
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
            // Links are not followed: their targets are outside of the folder, or are found anyway.
            Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => add(source, folder, entry.path())?,
            Ok(_folder) => {}
            Err(error) => source.unreadable.push(error.to_string()),
        }
    }
    Ok(())
}

fn is_built(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir()) && BUILD_FOLDERS.iter().any(|name| entry.file_name() == *name)
}

fn add(source: &mut ImportSource, folder: &Arc<Path>, file: &Path) -> Result<(), ImportError> {
    let relative = file.strip_prefix(folder).unwrap_or(file);
    let parts: Option<Vec<&str>> = relative.iter().map(|part| part.to_str()).collect();
    let fits = |called: &String| called.len() <= PATH_BYTES && !called.contains(char::is_control);
    let Some(called) = parts.map(|parts| parts.join("/")).filter(fits) else {
        source.misnamed += 1;
        return Ok(());
    };
    match source.files.get(&called) {
        Some(other) if other != folder => Err(ImportError::Ambiguous {
            file: called,
            folders: [other.to_path_buf(), folder.to_path_buf()],
            name: source.name.clone(),
        }),
        Some(_) => Ok(()),
        None => {
            source.files.insert(called, Arc::clone(folder));
            Ok(())
        }
    }
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

    fn called(source: &ImportSource) -> Vec<&str> {
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
        let sources = gather_sources(&paths, None, IgnoreRules::Ignored).unwrap();
        let [source] = sources.as_slice() else { panic!("{sources:?}") };
        assert_eq!(called(source), ["README.md", "src/dist/kept.js", "src/main.rs", "sub/target"]);
        assert!(source.whole && source.unreadable.is_empty(), "{source:?}");
        let all = gather_sources(&paths, None, IgnoreRules::Nothing).unwrap();
        assert_eq!(
            called(&all[0]),
            ["README.md", "a.log", "dist/x.js", "src/dist/kept.js", "src/main.rs", "sub/own.md", "sub/target"]
        );
        assert_eq!(all[0].name, source.name);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed_wherever_they_lead() {
        let (folder, elsewhere) = (tree(&[("a.md", "x")]), tree(&[("secret.md", "x")]));
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        link(elsewhere.path(), "folder");
        link(&elsewhere.path().join("secret.md"), "file.md");
        link(folder.path(), "itself");
        let sources = gather_sources(&[folder.path().to_owned()], None, IgnoreRules::Ignored).unwrap();
        assert_eq!(called(&sources[0]), ["a.md"]);
    }

    #[test]
    fn a_file_is_a_part_of_the_source_that_its_folder_is() {
        let folder = tree(&[("a.md", "x"), ("b.md", "x")]);
        let file = gather_sources(&[folder.path().join("a.md")], None, IgnoreRules::Ignored).unwrap();
        let whole = gather_sources(&[folder.path().to_owned()], None, IgnoreRules::Ignored).unwrap();
        assert_eq!((called(&file[0]), file[0].whole), (vec!["a.md"], false));
        assert_eq!((called(&whole[0]), whole[0].whole), (vec!["a.md", "b.md"], true));
        assert_eq!(file[0].name, whole[0].name);
    }

    #[test]
    fn folders_of_one_name_are_sources_of_their_own_unless_they_are_named() {
        let top = tree(&[("one/docs/a.md", "x"), ("two/docs/b.md", "x"), ("three/docs/a.md", "x")]);
        let paths = ["one/docs", "two/docs", "three/docs"].map(|path| top.path().join(path));
        let apart = gather_sources(&paths, None, IgnoreRules::Ignored).unwrap();
        assert_eq!(apart.len(), 3);
        assert!(
            apart.iter().all(|source| source.name.starts_with("docs-") && amalgam_knowledge::is_name(&source.name))
        );
        let together = gather_sources(&paths[..2], Some("docs"), IgnoreRules::Ignored).unwrap();
        assert_eq!(called(&together[0]), ["a.md", "b.md"]);
        let fault = gather_sources(&paths, Some("docs"), IgnoreRules::Ignored).unwrap_err().to_string();
        assert!(fault.starts_with("a.md is in "), "{fault}");
    }
}
