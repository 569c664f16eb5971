//! A store without sessions of the console.

use amalgam_core::{
    AuditDraft, Operator,
    store::{ConsoleOwner, ConsoleSession, ConsoleStore, Stored, TenantRecord},
};

use super::{Nothing, gives};

impl ConsoleStore for Nothing {
    fn add_console_session(
        &self,
        _: Operator,
        _: [u8; 32],
        _: ConsoleSession,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'_, bool> {
        gives(false)
    }

    fn console_session(&self, _: Operator, _: [u8; 32]) -> Stored<'_, Option<(ConsoleSession, TenantRecord)>> {
        gives(None)
    }

    fn touch_console_session<'a>(&'a self, _: Operator, _: &'a str, _: u64) -> Stored<'a, ()> {
        gives(())
    }

    fn console_sessions<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: Option<&'a str>,
        _: usize,
    ) -> Stored<'a, Vec<ConsoleSession>> {
        gives(Vec::new())
    }

    fn remove_console_session<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: &'a str,
        _: AuditDraft,
    ) -> Stored<'a, Option<ConsoleSession>> {
        gives(None)
    }

    fn add_console_link(&self, _: Operator, _: [u8; 32], _: ConsoleOwner, _: u64, _: AuditDraft) -> Stored<'_, bool> {
        gives(false)
    }

    fn take_console_link(&self, _: Operator, _: [u8; 32], _: u64) -> Stored<'_, Option<ConsoleOwner>> {
        gives(None)
    }
}
