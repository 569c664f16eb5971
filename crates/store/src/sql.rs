//! Statements as constants beside the code that runs them.
//!
//! A statement is a literal whose type says what is bound before the caller's own values: the tenant and the user, the
//! tenant, or nothing. Most statements of the shared code are the same for all engines; those that are not are fields of
//! [`SqlStatements`](crate::SqlStatements), which each engine supplies. An engine declares its own statements with
//! [`statements!`](crate::statements). A test of each engine lists all statements and prepares them against a fresh database.
//! Values are bound, never written into the text.

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $kind(Sql);

            impl $kind {
                /// A statement with this text.
                pub const fn new(text: &'static str) -> Self {
                    Self(Sql::new(text))
                }

                /// The statement without its kind.
                pub(crate) const fn sql(self) -> Sql {
                    self.0
                }

                pub(crate) const fn shared(text: &'static str, sqlite: &'static str) -> Self {
                    Self(Sql::shared(text, sqlite))
                }
            }

            impl From<$kind> for Sql {
                fn from(statement: $kind) -> Self {
                    statement.0
                }
            }
        )+
    };
}

kinds! {
    /// A statement about the rows of one user: the first parameter is the tenant, the second the user.
    UserSql
    /// A statement about the rows of one tenant, which is the first parameter.
    TenantSql
    /// A statement about the installation.
    OperatorSql
}

/// A statement of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sql {
    /// Its text, with `$1` for parameters if it is a shared one.
    pub text: &'static str,
    /// Its text for SQLite, with `?1` for parameters.
    pub sqlite: &'static str,
    /// A hash of the text, by which a connection finds what it has prepared.
    pub key: u64,
}

impl Sql {
    /// A statement of one engine.
    pub const fn new(text: &'static str) -> Self {
        Self::shared(text, text)
    }

    /// A statement of all engines, with its text for SQLite.
    pub const fn shared(text: &'static str, sqlite: &'static str) -> Self {
        let (bytes, mut key, mut at) = (text.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
        while at < bytes.len() {
            key = (key ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        Self { text, sqlite, key }
    }
}

/// The bytes of a statement with `?` in place of `$`. SQLite would number `$1` by its first occurrence in the text.
pub(crate) const fn question_marks<const N: usize>(text: &str) -> [u8; N] {
    let (bytes, mut marked, mut at) = (text.as_bytes(), [0; N], 0);
    while at < N {
        marked[at] = if bytes[at] == b'$' { b'?' } else { bytes[at] };
        at += 1;
    }
    marked
}

/// A statement as tests see it: its kind, its name and itself.
pub type Declared = (&'static str, &'static str, Sql);

/// Declares statements of an engine: those that the shared code runs, as `STATEMENTS`, or those of a file, with `ALL`, the list
/// of them.
#[macro_export]
macro_rules! statements {
    (SqlStatements: $($(#[$doc:meta])* $kind:ident $name:ident = $text:literal;)+) => {
        pub(crate) static STATEMENTS: $crate::SqlStatements =
            $crate::SqlStatements { $($name: $crate::sql::$kind::new($text)),+ };
    };
    ($($(#[$doc:meta])* $kind:ident $name:ident = $text:literal;)+) => {
        $($(#[$doc])* pub(crate) const $name: $crate::sql::$kind = $crate::sql::$kind::new($text);)+

        /// Every statement of this file.
        #[cfg(test)]
        pub(crate) const ALL: &[$crate::sql::Declared] = &[$((stringify!($kind), stringify!($name), $crate::sql::Sql::new($text))),+];
    };
}

/// Declares statements that all engines run, and `ALL`, the list of them.
macro_rules! shared_statements {
    ($($(#[$doc:meta])* $visible:vis $kind:ident $name:ident = $text:literal;)+) => {
        $(
            $(#[$doc])*
            $visible const $name: $crate::sql::$kind = {
                const MARKED: &[u8] = &$crate::sql::question_marks::<{ $text.len() }>($text);
                match std::str::from_utf8(MARKED) {
                    Ok(marked) => $crate::sql::$kind::shared($text, marked),
                    Err(_) => $crate::sql::$kind::new($text),
                }
            };
        )+

        /// Every statement of this file.
        pub(crate) const ALL: &[$crate::sql::Declared] =
            &[$((stringify!($kind), stringify!($name), $name.sql())),+];
    };
}
pub(crate) use shared_statements;
