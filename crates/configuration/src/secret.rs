//! Secrets: their sources, and values that are never printed.
//!
//! A setting is `env:NAME`, `file:PATH` or the value itself. No message of this file repeats a value.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

use super::sources::Environment;

/// More than any key or token needs: a larger file is a mistake.
const FILE_BYTES: u64 = 64 * 1024;

/// A secret of a setting.
#[derive(Clone)]
pub enum Secret {
    /// A secret with a value.
    Known {
        /// Where the value comes from.
        from: SecretFrom,
        /// The value.
        value: SecretString,
    },
    /// `env:NAME` of an unset variable. The code that needs the value reports that.
    Missing {
        /// The name of the variable.
        name: String,
    },
}

/// The source of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretFrom {
    /// A variable.
    Variable(String),
    /// A file.
    File(PathBuf),
    /// The setting itself.
    Setting,
}

impl Secret {
    /// Resolves a setting; `folder` is the base of relative paths.
    pub(crate) fn resolve(written: &str, folder: &Path, environment: &Environment) -> Result<Self, String> {
        if let Some(name) = written.strip_prefix("env:") {
            return Self::from_variable(name, environment);
        }
        if let Some(path) = written.strip_prefix("file:") {
            return Self::from_file(path, folder);
        }
        // `Env:KEY` would otherwise be sent to an upstream as the key, and the refusal would be hard to explain.
        let prefix = written.split(':').next().unwrap_or_default();
        if prefix.len() < written.len() && ["env", "file"].iter().any(|known| prefix.eq_ignore_ascii_case(known)) {
            return Err(format!("write '{}:' in lower case", prefix.to_lowercase()));
        }
        Self::known(SecretFrom::Setting, written)
    }

    /// The unset variable.
    pub fn missing(&self) -> Option<&str> {
        match self {
            Self::Missing { name } => Some(name),
            Self::Known { .. } => None,
        }
    }

    /// The variable that the setting names, set or not.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Missing { name } | Self::Known { from: SecretFrom::Variable(name), .. } => Some(name),
            Self::Known { .. } => None,
        }
    }

    /// The value, if there is one.
    pub fn value(&self) -> Option<&SecretString> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Missing { .. } => None,
        }
    }

    /// Whether the value contains a space, which no key does.
    pub(crate) fn has_space(&self) -> bool {
        self.value().is_some_and(|value| value.expose_secret().contains(' '))
    }

    fn from_variable(name: &str, environment: &Environment) -> Result<Self, String> {
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '=') {
            return Err("'env:' wants the name of a variable, as in 'env:OPENAI_API_KEY'".to_owned());
        }
        match environment.get(name).map_err(|_| format!("the variable {name} is not readable text"))? {
            // Shell scripts turn unset variables into empty ones.
            None | Some("") => Ok(Self::Missing { name: name.to_owned() }),
            Some(text) => Self::known(SecretFrom::Variable(name.to_owned()), text),
        }
    }

    fn from_file(path: &str, folder: &Path) -> Result<Self, String> {
        if path.trim().is_empty() {
            return Err("'file:' wants a path, as in 'file:/run/secrets/openai'".to_owned());
        }
        let path = folder.join(path);
        let shown = path.display();
        let mut text = String::new();
        let file = File::open(&path).map_err(|error| format!("cannot open the secret file {shown}: {error}"))?;
        file.take(FILE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|error| format!("cannot read the secret file {shown}: {error}"))?;
        if text.len() as u64 > FILE_BYTES {
            return Err(format!("the secret file {shown} is larger than {FILE_BYTES} bytes"));
        }
        Self::known(SecretFrom::File(path.clone()), text.trim_end())
    }

    fn known(from: SecretFrom, text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the secret is empty".to_owned());
        }
        // It is sent in an HTTP header, which allows nothing else.
        if !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
            return Err("the secret has characters that a header cannot carry".to_owned());
        }
        Ok(Self::Known { from, value: SecretString::from(text) })
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known { from: SecretFrom::Variable(name), .. } => write!(f, "env:{name} [redacted]"),
            Self::Known { from: SecretFrom::File(path), .. } => write!(f, "file:{} [redacted]", path.display()),
            Self::Known { from: SecretFrom::Setting, .. } => f.write_str("[redacted]"),
            Self::Missing { name } => write!(f, "env:{name} (not set)"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(written: &str, environment: &[(&str, &str)]) -> Result<Secret, String> {
        Secret::resolve(written, Path::new("."), &environment.iter().copied().collect())
    }

    // P12
    #[test]
    fn a_secret_shows_where_it_is_kept_and_never_its_value() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "hush-file\n").unwrap();
        let written = format!("file:{}", folder.path().join("key").display());
        for (written, variables) in
            [("hush-value", vec![]), ("env:KEY", vec![("KEY", "hush-variable")]), (written.as_str(), vec![])]
        {
            let secret = resolve(written, &variables).unwrap();
            assert!(secret.value().unwrap().expose_secret().starts_with("hush-"));
            let shown = format!("{secret} {secret:?} {secret:#?}");
            assert!(!shown.contains("hush"), "{shown}");
            assert!(shown.contains("[redacted]"), "{shown}");
        }
    }

    #[test]
    fn a_file_is_found_beside_the_configuration_and_loses_its_last_newline() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "abc\r\n").unwrap();
        let secret = Secret::resolve("file:key", folder.path(), &Environment::default()).unwrap();
        assert_eq!(secret.value().unwrap().expose_secret(), "abc");
    }

    #[test]
    fn a_variable_that_is_absent_or_empty_is_missing_by_name() {
        for variables in [vec![], vec![("KEY", "")]] {
            assert_eq!(resolve("env:KEY", &variables).unwrap().missing(), Some("KEY"));
        }
    }

    #[test]
    fn what_cannot_be_a_secret_is_refused_without_repeating_it() {
        for written in ["", "  ", "env:", "env: KEY", "file:", "file:/nowhere/hush", "ENV:KEY", "hush\nhush", "hüsh"] {
            let error = resolve(written, &[("hush", "x")]).unwrap_err();
            assert!(!error.replace("/nowhere/hush", "").contains("hush"), "{written:?}: {error}");
        }
    }

    #[test]
    fn a_huge_secret_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "x".repeat(70_000)).unwrap();
        let error = Secret::resolve("file:key", folder.path(), &Environment::default()).unwrap_err();
        assert!(error.contains("larger than"), "{error}");
    }
}
