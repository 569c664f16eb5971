//! The definition of a key: its section, its shape, its default. The keys themselves are listed in `keys.rs`.

use super::choices::Kind;
use super::keys::KEYS;

/// A section of the configuration: a table of the file, or the settings that only flags and variables have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Process,
    Server,
    Tls,
    Log,
    Metrics,
    Telemetry,
    Store,
    Tenants,
    Auth,
    ConsoleOidc,
    Upstreams,
    Models,
    Mcp,
    Assistant,
    Execute,
    Limits,
    Retention,
    Egress,
    Seed,
}

impl Section {
    /// The tables of a file, in the order of the documentation.
    pub(crate) const FILE_SECTIONS: &[Self] = &[
        Self::Server,
        Self::Tls,
        Self::Log,
        Self::Metrics,
        Self::Telemetry,
        Self::Store,
        Self::Tenants,
        Self::Auth,
        Self::ConsoleOidc,
        Self::Upstreams,
        Self::Models,
        Self::Mcp,
        Self::Assistant,
        Self::Execute,
        Self::Limits,
        Self::Retention,
        Self::Egress,
        Self::Seed,
    ];

    /// The name in the file and, in upper case with underscores, in variables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Process => "",
            Self::Server => "server",
            Self::Tls => "server.tls",
            Self::Log => "log",
            Self::Metrics => "metrics",
            Self::Telemetry => "telemetry",
            Self::Store => "store",
            Self::Tenants => "tenants",
            Self::Auth => "auth",
            Self::ConsoleOidc => "console.oidc",
            Self::Upstreams => "upstreams",
            Self::Models => "models",
            Self::Mcp => "mcp",
            Self::Assistant => "assistant",
            Self::Execute => "execute",
            Self::Limits => "limits",
            Self::Retention => "retention",
            Self::Egress => "egress",
            Self::Seed => "seed",
        }
    }

    /// Whether it has named entries, as in `[upstreams.openai]`.
    pub(crate) fn has_entries(self) -> bool {
        matches!(self, Self::Tenants | Self::Upstreams | Self::Models | Self::Mcp)
    }

    /// Whether variables can set its keys. Only the file may name programs to start.
    pub(crate) fn has_variables(self) -> bool {
        self != Self::Mcp
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::FILE_SECTIONS.iter().copied().find(|section| section.name() == name)
    }

    /// Whether a table of the file with this name has only tables of sections.
    pub(crate) fn is_group(name: &str) -> bool {
        Self::named(name).is_none()
            && Self::FILE_SECTIONS
                .iter()
                .any(|section| section.name().split_once('.').is_some_and(|(group, _)| group == name))
    }

    pub(crate) fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(move |key| key.section == self)
    }

    /// Whether its entries have a table of this name.
    pub(crate) fn has_table(self, name: &str) -> bool {
        self.keys().any(|key| key.name.split_once('.').is_some_and(|(table, _)| table == name))
    }

    pub(crate) fn key(self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }
}

/// One setting: its name, accepted values, default and documentation.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) section: Section,
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) preset: DefaultValue,
    /// The kinds of upstream that have it; empty for keys of other sections and for those of all kinds.
    pub(crate) kinds: &'static [Kind],
    /// A sentence for the documentation.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests hold the documentation to it"))]
    pub(crate) effect: &'static str,
}

impl Key {
    /// The variables that set it; `entry` is the upper-case name of the entry.
    pub(crate) fn variables(&self, entry: Option<&str>) -> Vec<String> {
        let key = self.name_in_variables();
        let section = self.section.name().to_ascii_uppercase().replace('.', "_");
        match (self.section, entry) {
            (Section::Process, _) => vec![format!("AMALGAM_{key}")],
            // The short name is for typing; the long one follows the rule.
            (Section::Server, _) if self.name == "listen" => {
                vec!["AMALGAM_LISTEN".to_owned(), "AMALGAM_SERVER_LISTEN".to_owned()]
            }
            // The short name was there before the section.
            (Section::Log, _) if self.name == "level" => {
                vec!["AMALGAM_LOG".to_owned(), "AMALGAM_LOG_LEVEL".to_owned()]
            }
            (_, Some(entry)) => vec![format!("AMALGAM_{section}_{entry}_{key}")],
            (_, None) => vec![format!("AMALGAM_{section}_{key}")],
        }
    }

    /// The name inside a variable.
    pub(crate) fn name_in_variables(&self) -> String {
        self.name.to_ascii_uppercase().replace('.', "_")
    }

    pub(crate) fn fits(&self, kind: Kind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    pub(crate) const fn for_kinds(mut self, kinds: &'static [Kind]) -> Self {
        self.kinds = kinds;
        self
    }
}

/// The type of values that a key accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Text,
    Path,
    LogFilter,
    Boolean,
    /// The log level of each door.
    DoorLevels,
    Integer {
        least: i64,
        most: i64,
    },
    /// A number from 0, with or without a fraction.
    Decimal {
        most: u32,
    },
    /// Limits in milliseconds.
    Duration {
        least: u64,
        most: u64,
    },
    /// Limits in bytes.
    Size {
        least: u64,
        most: u64,
    },
    /// `HOST:PORT`, or `unix:PATH`.
    Listen,
    /// A private target: `ADDRESS:PORT`, `ADDRESS`, `ADDRESS/PREFIX`, `HOST:PORT` or `HOST`.
    Target,
    Targets,
    BaseUrl,
    /// Networks, or addresses.
    Networks,
    /// A single network.
    Network,
    /// Origins of web pages: scheme, host and, if it is not the default, port.
    Origins,
    /// A single origin.
    Origin,
    /// The URL of a server, unchanged, with its slashes and its query.
    Url,
    /// A file path, or the `https` URL of a key set.
    PathOrUrl,
    /// The location of the database; a secret, since it may contain a password.
    StoreUrl,
    Secret,
    /// The value of an `Authorization` header: a secret, possibly with a scheme before it.
    Credential,
    Secrets,
    Headers,
    /// The environment variables of a program.
    Variables,
    Names,
    /// The scopes of each role.
    Roles,
    /// Any texts, in order.
    Arguments,
    /// A single argument.
    Argument,
    /// Ids of tenants.
    Ids,
    Choice(&'static [&'static str]),
    Choices(&'static [&'static str]),
}

/// The value of an unset key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DefaultValue {
    /// This value, in the syntax of a variable.
    Value(&'static str),
    /// An entry without it is refused.
    Required,
    /// No value; the text says what that means.
    Unset(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_listed_once() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(
                !KEYS.iter().skip(index + 1).any(|other| (other.section, other.name) == (key.section, key.name)),
                "{:?} {}",
                key.section,
                key.name
            );
        }
    }

    #[test]
    fn a_variable_of_an_entry_can_be_taken_apart_in_one_way_only() {
        // AMALGAM_UPSTREAMS_X_Y_Z is the key Z of X_Y or the key Y_Z of X: one of both must not exist.
        for section in Section::FILE_SECTIONS.iter().filter(|section| section.has_entries()) {
            for (key, other) in section.keys().flat_map(|key| section.keys().map(move |other| (key, other))) {
                let (name, end) = (key.name_in_variables(), format!("_{}", other.name_in_variables()));
                assert!(!name.ends_with(&end), "{section:?}: {} {}", key.name, other.name);
            }
        }
    }

    #[test]
    fn no_two_keys_share_a_variable() {
        let mut variables: Vec<String> = KEYS.iter().flat_map(|key| key.variables(Some("X"))).collect();
        variables.sort();
        let before = variables.len();
        variables.dedup();
        assert_eq!(variables.len(), before);
    }
}
