//! Statements as constants: what they are about, and a list of all of them.
//!
//! A statement is declared with [`statements!`] and nowhere else, so that a test can prepare every one against a fresh
//! database and see that those on behalf of a caller name the caller. Values are bound, never written into the text.

/// On whose behalf a statement runs; says what its text has to name.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// A caller: `tenant_id` and `user_id`.
    Caller,
    /// A tenant's administrator: `tenant_id`.
    Admin,
    /// The installation.
    Operator,
}

/// One statement. Known by its address: a connection prepares each once.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) text: &'static str,
}

impl Sql {
    /// What the statement is known by.
    pub(super) fn key(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Declares statements and `ALL`, the list of them.
macro_rules! statements {
    ($($(#[$doc:meta])* $on_behalf:ident $name:ident = $text:literal;)+) => {
        $($(#[$doc])* static $name: $crate::postgres::sql::Sql = $crate::postgres::sql::Sql { text: $text };)+

        /// Every statement of this file, its name, and on whose behalf it runs.
        #[cfg(test)]
        pub(in crate::postgres) static ALL: &[($crate::postgres::sql::For, &str, &$crate::postgres::sql::Sql)] =
            &[$(($crate::postgres::sql::For::$on_behalf, stringify!($name), &$name)),+];
    };
}
pub(super) use statements;
