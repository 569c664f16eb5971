//! Where a value came from, and what is wrong with it.

use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;

/// Where a value was set. The first thing that a reader of a fault wants to know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// A line of the configuration file, counted from one.
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

/// One thing that is wrong with the configuration.
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

/// Everything that is wrong with a configuration, told at once and in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Faults {
    list: Vec<Fault>,
}

impl Faults {
    /// `Ok` when there are none.
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
