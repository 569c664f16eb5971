//! Faults of the configuration, and the origins of values.

use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;

/// The origin of a value, which every fault names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// A line of the configuration file, from 1.
    File { path: PathBuf, line: usize },
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
    /// Not set: the built-in default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) origin: Origin,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(origin: Origin, message: impl Into<String>) -> Self {
        Self { origin, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => f.write_str(&self.message),
            origin => write!(f, "{origin}: {}", self.message),
        }
    }
}

/// All faults of a configuration, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Faults {
    list: Vec<Fault>,
}

impl Faults {
    /// `Ok` if the list is empty.
    pub(crate) fn none_of(mut list: Vec<Fault>) -> Result<(), Self> {
        list.sort_by(|a, b| match a.origin.cmp(&b.origin) {
            Ordering::Equal => a.message.cmp(&b.message),
            order => order,
        });
        list.dedup();
        if list.is_empty() { Ok(()) } else { Err(Self { list }) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.list.iter()
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self { list: vec![fault] }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.list.as_slice() {
            [only] => write!(f, "the configuration cannot be used\n  {only}"),
            all => {
                write!(f, "the configuration cannot be used; {} things are wrong", all.len())?;
                all.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
        }
    }
}

impl std::error::Error for Faults {}
