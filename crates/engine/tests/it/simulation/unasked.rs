//! Everything of a store that no turn asks for.

use amalgam_core::{
    Admin, AuditDraft, AuditHead, AuditRow, Operator, Scope, TenantState,
    store::{
        AppendOutcome, Approval, AuditFilter, AuditStore, BankOf, BankStore, BankTool, CallBodies, Conversation,
        ConversationItem, ConversationStore, Decision, DecisionOutcome, EventChunk, KeyRecord, Listing, NewItem,
        NewKey, Page, RecentTurns, ResponseSettingsStore, Stored, StoredCall, TenancyStore, TenantChange, TenantRecord,
        ToolStatistics, TurnCursor, TurnDetailStore, TurnFilter, TurnPage, TurnsOf, UsageQuery, UsageStore, UsageSums,
    },
};
use amalgam_protocol::Json;
use bytes::Bytes;

use super::store::{SimStore, not_simulated};

impl BankStore for SimStore {
    fn tools_for<'a>(&'a self, _: &'a Scope, _: Option<&'a [String]>) -> Stored<'a, Vec<BankTool>> {
        not_simulated()
    }

    fn tools<'a>(&'a self, _: BankOf<'a>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<BankTool>> {
        not_simulated()
    }

    fn tool<'a>(&'a self, _: BankOf<'a>, _: &'a str) -> Stored<'a, Option<BankTool>> {
        not_simulated()
    }

    fn put_tool<'a>(&'a self, _: BankOf<'a>, _: BankTool, _: AuditDraft) -> Stored<'a, bool> {
        not_simulated()
    }

    fn reseal_tool<'a>(&'a self, _: BankOf<'a>, _: &'a str, _: &'a Json, _: &'a Json) -> Stored<'a, bool> {
        not_simulated()
    }

    fn delete_tool<'a>(&'a self, _: BankOf<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, bool> {
        not_simulated()
    }

    fn tool_statistics<'a>(&'a self, _: Admin<'a>, _: &'a str, _: &'a str, _: u64) -> Stored<'a, ToolStatistics> {
        not_simulated()
    }

    fn approval<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Approval>> {
        not_simulated()
    }

    fn approval_of_tenant<'a>(&'a self, _: Admin<'a>, _: &'a str) -> Stored<'a, Option<Approval>> {
        not_simulated()
    }

    fn approvals<'a>(
        &'a self,
        _: Admin<'a>,
        _: bool,
        _: Option<&'a str>,
        _: usize,
        _: u64,
    ) -> Stored<'a, Vec<Approval>> {
        not_simulated()
    }

    fn decide<'a>(&'a self, _: &'a Scope, _: &'a str, _: Decision) -> Stored<'a, Option<DecisionOutcome>> {
        not_simulated()
    }

    fn decide_as_admin<'a>(
        &'a self,
        _: Admin<'a>,
        _: &'a str,
        _: Decision,
        _: AuditDraft,
    ) -> Stored<'a, Option<DecisionOutcome>> {
        not_simulated()
    }

    fn use_approval<'a>(&'a self, _: &'a Scope, id: &'a str, _: &'a str) -> Stored<'a, bool> {
        Box::pin(self.use_up(id))
    }
}

impl ResponseSettingsStore for SimStore {
    fn response_settings<'a>(&'a self, _: &'a Scope, _: Vec<String>) -> Stored<'a, Vec<Option<Bytes>>> {
        not_simulated()
    }

    fn replace_response_settings<'a>(&'a self, _: &'a Scope, _: &'a str, _: Bytes) -> Stored<'a, bool> {
        not_simulated()
    }
}

impl ConversationStore for SimStore {
    fn create_conversation<'a>(&'a self, _: &'a Scope, _: &'a Conversation, _: Vec<NewItem>) -> Stored<'a, ()> {
        not_simulated()
    }

    fn conversation<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Conversation>> {
        not_simulated()
    }

    fn update_conversation<'a>(&'a self, _: &'a Scope, _: &'a str, _: Json) -> Stored<'a, Option<Conversation>> {
        not_simulated()
    }

    fn delete_conversation<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, bool> {
        not_simulated()
    }

    fn add_items<'a>(&'a self, _: &'a Scope, _: &'a str, _: Vec<NewItem>) -> Stored<'a, Option<AppendOutcome>> {
        not_simulated()
    }

    fn list_items<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a Page) -> Stored<'a, Option<Listing>> {
        not_simulated()
    }

    fn conversation_item<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, Option<ConversationItem>> {
        not_simulated()
    }

    fn delete_item<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, Option<bool>> {
        not_simulated()
    }

    fn conversation_history<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Vec<Json>>> {
        not_simulated()
    }
}

impl TenancyStore for SimStore {
    fn create_tenant<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: &'a str,
        _: TenantState,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'a, Option<TenantRecord>> {
        not_simulated()
    }

    fn tenants(&self, _: Operator, _: Option<i64>, _: usize) -> Stored<'_, Vec<TenantRecord>> {
        not_simulated()
    }

    fn tenant(&self, _: Operator, _: i64) -> Stored<'_, Option<TenantRecord>> {
        not_simulated()
    }

    fn change_tenant(&self, _: Operator, _: i64, _: TenantChange, _: AuditDraft) -> Stored<'_, Option<TenantRecord>> {
        not_simulated()
    }

    fn create_key(&self, _: Operator, _: NewKey, _: AuditDraft) -> Stored<'_, bool> {
        not_simulated()
    }

    fn keys<'a>(&'a self, _: Operator, _: Option<i64>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<KeyRecord>> {
        not_simulated()
    }

    fn key<'a>(&'a self, _: Operator, _: &'a str) -> Stored<'a, Option<KeyRecord>> {
        not_simulated()
    }

    fn revoke_key<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: &'a str,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'a, Option<KeyRecord>> {
        not_simulated()
    }

    fn key_by_hash(&self, _: Operator, _: [u8; 32]) -> Stored<'_, Option<(KeyRecord, TenantRecord)>> {
        not_simulated()
    }

    fn touch_keys(&self, _: Operator, _: Vec<(String, u64)>) -> Stored<'_, ()> {
        not_simulated()
    }

    fn remembered<'a>(&'a self, _: Operator, _: &'a str) -> Stored<'a, Option<String>> {
        not_simulated()
    }

    fn remember<'a>(&'a self, _: Operator, _: &'a str, _: &'a str, _: bool) -> Stored<'a, String> {
        not_simulated()
    }
}

impl TurnDetailStore for SimStore {
    fn turn_calls<'a>(&'a self, _: Admin<'a>, _: &'a str, _: CallBodies) -> Stored<'a, Vec<StoredCall>> {
        not_simulated()
    }

    fn turn_events<'a>(&'a self, _: Admin<'a>, _: &'a str, _: Option<u64>, _: usize) -> Stored<'a, Vec<EventChunk>> {
        not_simulated()
    }

    fn response_of_item<'a>(&'a self, _: Admin<'a>, _: amalgam_core::Stem) -> Stored<'a, Option<String>> {
        not_simulated()
    }

    fn response_of_call<'a>(&'a self, _: Admin<'a>, _: &'a str) -> Stored<'a, Option<String>> {
        not_simulated()
    }

    fn recent_turns<'a>(&'a self, _: TurnsOf<'a>, _: u64, _: usize, _: usize) -> Stored<'a, RecentTurns> {
        not_simulated()
    }

    fn has_turns<'a>(&'a self, _: TurnsOf<'a>) -> Stored<'a, bool> {
        not_simulated()
    }

    fn turn_before<'a>(&'a self, _: Admin<'a>, _: &'a str, _: u64) -> Stored<'a, Option<String>> {
        not_simulated()
    }
}

impl UsageStore for SimStore {
    fn turns<'a>(&'a self, _: TurnsOf<'a>, _: TurnFilter, _: Option<TurnCursor>, _: usize) -> Stored<'a, TurnPage> {
        not_simulated()
    }

    fn usage<'a>(&'a self, _: TurnsOf<'a>, _: UsageQuery) -> Stored<'a, Vec<UsageSums>> {
        not_simulated()
    }

    fn spans_of_turn<'a>(&'a self, _: Admin<'a>, _: u64, _: &'a str) -> Stored<'a, Option<Json>> {
        not_simulated()
    }

    fn response_of_request<'a>(&'a self, _: Admin<'a>, _: &'a str) -> Stored<'a, Option<String>> {
        not_simulated()
    }
}

impl AuditStore for SimStore {
    fn append_audit(&self, _: Operator, _: AuditDraft) -> Stored<'_, ()> {
        not_simulated()
    }

    fn audit(&self, _: Operator, _: AuditFilter, _: usize) -> Stored<'_, Option<Vec<AuditRow>>> {
        not_simulated()
    }

    fn audit_chain(&self, _: Operator, _: u64, _: usize) -> Stored<'_, Vec<AuditRow>> {
        not_simulated()
    }

    fn audit_head(&self, _: Operator) -> Stored<'_, Option<AuditHead>> {
        not_simulated()
    }
}
