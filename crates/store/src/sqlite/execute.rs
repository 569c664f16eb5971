//! Sessions of the strict contract, their turns and steps.

use amalgam_core::{
    Scope,
    store::{AgentSession, AgentTurn, ExecuteStore, ModeChange, NewStep, Stored, TakenStep},
};

use super::Sqlite;

impl ExecuteStore for Sqlite {
    fn open_session<'a>(&'a self, _scope: &'a Scope, _session: AgentSession) -> Stored<'a, ()> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn agent_session<'a>(&'a self, _scope: &'a Scope, _id: &'a str) -> Stored<'a, Option<AgentSession>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn agent_sessions<'a>(
        &'a self,
        _scope: &'a Scope,
        _after: Option<&'a str>,
        _limit: usize,
    ) -> Stored<'a, Vec<AgentSession>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn delete_session<'a>(&'a self, _scope: &'a Scope, _id: &'a str) -> Stored<'a, Option<Vec<String>>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn agent_turn<'a>(
        &'a self,
        _scope: &'a Scope,
        _session_id: &'a str,
        _turn_id: &'a str,
    ) -> Stored<'a, Option<AgentTurn>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn agent_turns<'a>(
        &'a self,
        _scope: &'a Scope,
        _session_id: &'a str,
        _before: Option<u64>,
        _limit: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn take_step<'a>(&'a self, _scope: &'a Scope, _step: NewStep) -> Stored<'a, TakenStep> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn drop_step<'a>(&'a self, _scope: &'a Scope, _session_id: &'a str, _response_id: &'a str) -> Stored<'a, ()> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn change_mode<'a>(&'a self, _scope: &'a Scope, _session_id: &'a str, _change: ModeChange) -> Stored<'a, bool> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn mode_changes<'a>(&'a self, _scope: &'a Scope, _x: &'a str, _y: usize) -> Stored<'a, Option<Vec<ModeChange>>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }
}
