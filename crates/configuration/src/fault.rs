//! ConfigFaults of the configuration, and the origins of values.

use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;

/// The origin of a value, which every fault names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueOrigin {
    /// A line of the configuration file, from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
    /// Not set: the built-in default.
    Default,
}

impl fmt::Display for ValueOrigin {
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
pub struct ConfigFault {
    /// The place of the fault.
    pub origin: ValueOrigin,
    /// What is wrong.
    pub message: String,
}

impl ConfigFault {
    /// A fault at a place.
    pub fn new(origin: ValueOrigin, message: impl Into<String>) -> Self {
        Self { origin, message: message.into() }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            ValueOrigin::Default => f.write_str(&self.message),
            origin => write!(f, "{origin}: {}", self.message),
        }
    }
}

/// All faults of a configuration, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFaults {
    list: Vec<ConfigFault>,
}

impl ConfigFaults {
    /// `Ok` if the list is empty.
    pub(crate) fn none_of(mut list: Vec<ConfigFault>) -> Result<(), Self> {
        list.sort_by(|a, b| match a.origin.cmp(&b.origin) {
            Ordering::Equal => a.message.cmp(&b.message),
            order => order,
        });
        list.dedup();
        if list.is_empty() { Ok(()) } else { Err(Self { list }) }
    }

    /// The faults, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigFault> {
        self.list.iter()
    }
}

impl From<ConfigFault> for ConfigFaults {
    fn from(fault: ConfigFault) -> Self {
        Self { list: vec![fault] }
    }
}

impl fmt::Display for ConfigFaults {
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

impl std::error::Error for ConfigFaults {}
