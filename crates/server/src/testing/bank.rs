//! A bank without tools, and a tool provider without tools.

use amalgam_core::{
    Admin, AuditDraft, BankFault, BoxFuture, BuiltinDescription, Fault, ResolvedTool, Scope, ServerTool, ToolProvider,
    ToolRequest,
    store::{Approval, BankOf, BankStore, BankTool, Decision, DecisionOutcome, Stored, ToolStatistics},
};
use amalgam_protocol::Json;

use super::{Nothing, gives};

impl BankStore for Nothing {
    fn tools_for<'a>(&'a self, _: &'a Scope, _: Option<&'a [String]>) -> Stored<'a, Vec<BankTool>> {
        gives(Vec::new())
    }

    fn tools<'a>(&'a self, _: BankOf<'a>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<BankTool>> {
        gives(Vec::new())
    }

    fn tool<'a>(&'a self, _: BankOf<'a>, _: &'a str) -> Stored<'a, Option<BankTool>> {
        gives(None)
    }

    fn put_tool<'a>(&'a self, _: BankOf<'a>, _: BankTool, _: AuditDraft) -> Stored<'a, bool> {
        gives(true)
    }

    fn reseal_tool<'a>(&'a self, _: BankOf<'a>, _: &'a str, _: &'a Json, _: &'a Json) -> Stored<'a, bool> {
        gives(true)
    }

    fn delete_tool<'a>(&'a self, _: BankOf<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, bool> {
        gives(false)
    }

    fn tool_statistics<'a>(&'a self, _: Admin<'a>, _: &'a str, _: &'a str, _: u64) -> Stored<'a, ToolStatistics> {
        gives(ToolStatistics::default())
    }

    fn approval<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Approval>> {
        gives(None)
    }

    fn approval_of_tenant<'a>(&'a self, _: Admin<'a>, _: &'a str) -> Stored<'a, Option<Approval>> {
        gives(None)
    }

    fn approvals<'a>(
        &'a self,
        _: Admin<'a>,
        _: bool,
        _: Option<&'a str>,
        _: usize,
        _: u64,
    ) -> Stored<'a, Vec<Approval>> {
        gives(Vec::new())
    }

    fn decide<'a>(&'a self, _: &'a Scope, _: &'a str, _: Decision) -> Stored<'a, Option<DecisionOutcome>> {
        gives(None)
    }

    fn decide_as_admin<'a>(
        &'a self,
        _: Admin<'a>,
        _: &'a str,
        _: Decision,
        _: AuditDraft,
    ) -> Stored<'a, Option<DecisionOutcome>> {
        gives(None)
    }

    fn use_approval<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, bool> {
        gives(false)
    }
}

impl ToolProvider for Nothing {
    fn equip<'a>(&'a self, _: &'a Scope, asked: Vec<ToolRequest>) -> BoxFuture<'a, Result<Vec<ResolvedTool>, Fault>> {
        Box::pin(async move { Ok(asked.iter().map(|_| ResolvedTool::Unknown).collect()) })
    }

    fn answer_check<'a>(
        &'a self,
        _: &'a Json,
    ) -> BoxFuture<'a, Result<std::sync::Arc<dyn amalgam_core::AnswerCheck>, String>> {
        Box::pin(async { Err("no schema is checked here".to_owned()) })
    }

    fn prepare<'a>(&'a self, _: &'a Scope, _: &'a BankTool) -> BoxFuture<'a, Result<Option<ServerTool>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn seal_settings(&self, _: &Scope, tool: &BankTool, _: Option<&BankTool>) -> Result<Json, BankFault> {
        Ok(tool.settings.clone())
    }

    fn show_settings(&self, tool: &BankTool) -> Json {
        tool.settings.clone()
    }

    fn builtin(&self, _: &str) -> Option<BuiltinDescription> {
        None
    }

    fn check<'a>(&'a self, _: &'a Scope, _: &'a BankTool) -> BoxFuture<'a, Result<(), BankFault>> {
        Box::pin(async { Ok(()) })
    }
}
