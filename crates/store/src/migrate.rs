//! Migrations: the schema as a list of numbered scripts inside the binary, the same way for every engine.
//!
//! This file decides the order, what is pending, and what must be refused. The engines run scripts and store the table
//! of those that were run.

use amalgam_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// One script. A migration that was released never changes; the next change of the schema is a new one.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// From 1, without gaps.
    pub version: u32,
    /// The file's name without its ending, such as `V001__responses`.
    pub name: &'static str,
    /// The script: several statements, run in one transaction.
    pub sql: &'static str,
}

/// A migration that a database has recorded as run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Its number.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// The [`Migration::checksum`] when it ran.
    pub checksum: String,
}

/// One line of `amalgam migrate --status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Its number.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// Whether it was run on the database.
    pub applied: bool,
    /// The problem that makes the database unusable, if there is one.
    pub problem: Option<MigrationProblem>,
}

/// A problem with a migration that was run on a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationProblem {
    /// Its checksum is not that of the migration in this binary.
    Changed,
    /// This binary does not have the migration.
    Unknown,
}

/// Why the schema of a database does not fit this binary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MigrationError {
    /// Another, newer binary has used the database.
    #[error("the database has schema version {database}, this binary knows only {binary}: use a newer binary")]
    Newer {
        /// The last migration of the database.
        database: u32,
        /// The last migration of this binary.
        binary: u32,
    },
    /// A migration is not the one that ran.
    #[error("migration `{name}` of the database is not the one in this binary")]
    Changed {
        /// The migration.
        name: String,
    },
    /// An earlier migration is missing though a later one ran.
    #[error("the database has schema version {database}, but migration {missing} never ran on it")]
    Gap {
        /// The last migration of the database.
        database: u32,
        /// The missing migration.
        missing: u32,
    },
    /// The database has to be migrated first.
    #[error("the database has schema version {database}, this binary needs {binary}: run `amalgam migrate`")]
    Pending {
        /// The last migration of the database; 0 for none.
        database: u32,
        /// The last migration of this binary.
        binary: u32,
    },
}

/// What to do with migrations that were not run on a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Migrations {
    /// They are run.
    #[default]
    Run,
    /// The database is refused.
    Require,
}

impl Migration {
    /// The migration in the file `name`, whose version is the three digits after its `V`.
    #[expect(clippy::panic, reason = "runs while the binary is built: a name that is wrong does not compile")]
    pub const fn embedded(name: &'static str, sql: &'static str) -> Self {
        let [b'V', hundreds @ b'0'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'_', b'_', ..] = name.as_bytes()
        else {
            panic!("a migration is called V001__name");
        };
        let version = (*hundreds - b'0') as u32 * 100 + (*tens - b'0') as u32 * 10 + (*ones - b'0') as u32;
        Self { version, name, sql }
    }

    /// SHA-256 of the script, in hexadecimal: reveals a script that was edited after it ran.
    pub fn checksum(&self) -> String {
        hex(&Sha256::digest(self.sql))
    }
}

/// The migrations that were not run on a database, in order, or why it cannot be used. `applied` is sorted by version.
pub fn pending<'a>(known: &'a [Migration], applied: &[Applied]) -> Result<&'a [Migration], MigrationError> {
    let binary = known.last().map_or(0, |last| last.version);
    let database = applied.last().map_or(0, |last| last.version);
    if database > binary {
        return Err(MigrationError::Newer { database, binary });
    }
    for (migration, applied) in known.iter().zip(applied) {
        if applied.version != migration.version {
            return Err(MigrationError::Gap { database, missing: migration.version });
        }
        if applied.checksum != migration.checksum() {
            return Err(MigrationError::Changed { name: applied.name.clone() });
        }
    }
    Ok(known.get(applied.len()..).unwrap_or_default())
}

/// Refuses a database that lacks migrations, for a caller that must not run them.
pub fn require_all(known: &[Migration], applied: &[Applied]) -> Result<(), MigrationError> {
    match pending(known, applied)? {
        [] => Ok(()),
        lacking => Err(MigrationError::Pending {
            database: applied.last().map_or(0, |last| last.version),
            binary: lacking.last().map_or(0, |last| last.version),
        }),
    }
}

/// The state of each migration in a database, in order, including those that this binary does not have.
pub fn status(known: &[Migration], applied: &[Applied]) -> Vec<MigrationStatus> {
    let knows = |version: u32| known.iter().any(|migration| migration.version == version);
    let ours = known.iter().map(|migration| {
        let applied = applied.iter().find(|applied| applied.version == migration.version);
        let changed = applied.is_some_and(|applied| applied.checksum != migration.checksum());
        MigrationStatus {
            version: migration.version,
            name: migration.name.to_owned(),
            applied: applied.is_some(),
            problem: changed.then_some(MigrationProblem::Changed),
        }
    });
    let foreign = applied.iter().filter(|applied| !knows(applied.version)).map(|applied| MigrationStatus {
        version: applied.version,
        name: applied.name.clone(),
        applied: true,
        problem: Some(MigrationProblem::Unknown),
    });
    ours.chain(foreign).collect()
}

/// The list of an engine's migrations, which are in its folder `src/migrations`: `migrations!("V001__state", "V002__tools")`.
#[macro_export]
macro_rules! migrations {
    ($($name:literal),+ $(,)?) => {
        &[$($crate::migrate::Migration::embedded(
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/migrations/", $name, ".sql")),
        )),+]
    };
}
#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Migration] = &[
        Migration::embedded("V001__first", "CREATE TABLE a (b)"),
        Migration::embedded("V002__second", "CREATE TABLE c (d)"),
    ];

    fn applied(migration: &Migration) -> Applied {
        Applied { version: migration.version, name: migration.name.to_owned(), checksum: migration.checksum() }
    }

    fn versions(migrations: &[Migration]) -> Vec<u32> {
        migrations.iter().map(|migration| migration.version).collect()
    }

    #[test]
    fn what_a_database_lacks_is_pending_in_order() {
        assert_eq!(versions(pending(KNOWN, &[]).unwrap()), [1, 2]);
        assert_eq!(versions(pending(KNOWN, &[applied(&KNOWN[0])]).unwrap()), [2]);
        assert_eq!(versions(pending(KNOWN, &[applied(&KNOWN[0]), applied(&KNOWN[1])]).unwrap()), [0; 0]);
        assert_eq!(require_all(KNOWN, &[applied(&KNOWN[0])]), Err(MigrationError::Pending { database: 1, binary: 2 }));
    }

    #[test]
    fn a_database_that_does_not_fit_is_refused_with_both_versions() {
        let newer = Applied { version: 7, name: "V007__later".into(), checksum: "?".into() };
        let both = [applied(&KNOWN[0]), applied(&KNOWN[1]), newer];
        let error = pending(KNOWN, &both).unwrap_err();
        assert_eq!(error, MigrationError::Newer { database: 7, binary: 2 });
        assert_eq!(
            error.to_string(),
            "the database has schema version 7, this binary knows only 2: use a newer binary"
        );

        let edited = Applied { checksum: "other".into(), ..applied(&KNOWN[0]) };
        let refused = MigrationError::Changed { name: "V001__first".into() };
        assert_eq!(pending(KNOWN, &[edited]).unwrap_err(), refused);
        assert_eq!(pending(KNOWN, &[applied(&KNOWN[1])]).unwrap_err(), MigrationError::Gap { database: 2, missing: 1 });
    }

    #[test]
    fn the_status_lists_what_is_there_what_is_not_and_what_is_unknown() {
        let later = Applied { version: 7, name: "V007__later".into(), checksum: "?".into() };
        let line = |version, name: &str, applied, problem| MigrationStatus {
            version,
            name: name.to_owned(),
            applied,
            problem,
        };
        let second = line(2, "V002__second", false, None);
        let unknown = line(7, "V007__later", true, Some(MigrationProblem::Unknown));
        assert_eq!(
            status(KNOWN, &[applied(&KNOWN[0]), later]),
            [line(1, "V001__first", true, None), second.clone(), unknown]
        );
        let edited = Applied { checksum: "other".into(), ..applied(&KNOWN[0]) };
        let changed = line(1, "V001__first", true, Some(MigrationProblem::Changed));
        assert_eq!(status(KNOWN, &[edited]), [changed, second]);
    }
}
