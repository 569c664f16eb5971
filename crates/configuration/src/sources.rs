//! The sources of a configuration: flags, the environment and one file, read once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use super::fault::{ConfigFault, ConfigFaults, ValueOrigin};

/// A larger file is not a configuration.
const FILE_BYTES: u64 = 1024 * 1024;

/// The input of [`Config::load`](super::Config::load). Without `Debug`: it contains plain secrets.
#[derive(Default)]
pub struct Sources {
    /// The flags of the command line.
    pub flags: Flags,
    /// The environment.
    pub env: Environment,
    /// The configuration file, if there is one.
    pub file: Option<SourceFile>,
}

/// The settings that flags can change.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The path of the file.
    pub config: Option<PathBuf>,
    /// The address of the server.
    pub listen: Option<String>,
    /// The data folder.
    pub data: Option<PathBuf>,
}

/// The text of the configuration file.
pub struct SourceFile {
    pub path: PathBuf,
    pub text: String,
}

impl Sources {
    /// Reads the environment of this process and the file that the flags or `AMALGAM_CONFIG` name.
    pub fn gather(flags: Flags) -> Result<Self, ConfigFaults> {
        let env = Environment { variables: std::env::vars_os().collect() };
        let named = match &flags.config {
            Some(path) => Some((path.clone(), ValueOrigin::Flag("--config"))),
            None => env
                .variables
                .get(OsStr::new("AMALGAM_CONFIG"))
                .filter(|path| !path.is_empty())
                .map(|path| (PathBuf::from(path), ValueOrigin::Variable("AMALGAM_CONFIG".to_owned()))),
        };
        let file = match named {
            Some((path, named_by)) => Some(SourceFile::read(path, named_by)?),
            None => None,
        };
        Ok(Self { flags, env, file })
    }
}

impl SourceFile {
    fn read(path: PathBuf, named_by: ValueOrigin) -> Result<Self, ConfigFault> {
        let refuse =
            |problem: String| ConfigFault::new(named_by.clone(), format!("cannot read {}: {problem}", path.display()));
        let mut bytes = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(FILE_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| refuse(error.to_string()))?;
        if bytes.len() as u64 > FILE_BYTES {
            return Err(refuse(format!("a configuration has at most {FILE_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count();
            ConfigFault::new(ValueOrigin::File { path: path.clone(), line }, "the file is not UTF-8 text")
        })?;
        Ok(Self { path, text })
    }
}

/// The environment at the start of the process. Without `Debug`: it contains plain secrets.
#[derive(Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

/// A variable whose value is not UTF-8.
#[derive(Debug)]
pub(crate) struct NotText;

impl Environment {
    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, NotText> {
        self.variables.get(OsStr::new(name)).map(|value| value.to_str().ok_or(NotText)).transpose()
    }

    /// The names that start with `prefix`, in order.
    pub(crate) fn names<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.variables.keys().filter_map(|name| name.to_str()).filter(move |name| name.starts_with(prefix))
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(variables: I) -> Self {
        Self { variables: variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}
