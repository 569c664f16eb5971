//! Sessions of the console, which no turn asks for.

use amalgam_core::{
    AuditDraft, Operator,
    store::{ConsoleOwner, ConsoleSession, ConsoleStore, Stored, TenantRecord},
};

use super::store::{SimStore, not_simulated};

impl ConsoleStore for SimStore {
    fn add_console_session(
        &self,
        _: Operator,
        _: [u8; 32],
        _: ConsoleSession,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'_, bool> {
        not_simulated()
    }

    fn console_session(&self, _: Operator, _: [u8; 32]) -> Stored<'_, Option<(ConsoleSession, TenantRecord)>> {
        not_simulated()
    }

    fn touch_console_session<'a>(&'a self, _: Operator, _: &'a str, _: u64) -> Stored<'a, ()> {
        not_simulated()
    }

    fn console_sessions<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: Option<&'a str>,
        _: usize,
    ) -> Stored<'a, Vec<ConsoleSession>> {
        not_simulated()
    }

    fn remove_console_session<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: &'a str,
        _: AuditDraft,
    ) -> Stored<'a, Option<ConsoleSession>> {
        not_simulated()
    }

    fn add_console_link(&self, _: Operator, _: [u8; 32], _: ConsoleOwner, _: u64, _: AuditDraft) -> Stored<'_, bool> {
        not_simulated()
    }

    fn take_console_link(&self, _: Operator, _: [u8; 32], _: u64) -> Stored<'_, Option<ConsoleOwner>> {
        not_simulated()
    }
}
