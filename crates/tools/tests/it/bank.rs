//! A bank in memory, and a registry over it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use amalgam_core::{
    Admin, ApprovalRule, AuditDraft, BoxFuture, Clock, Decider, Fault, McpServerRequest, Policy, ResolvedTool, Scope,
    Seal, SecretText, ServerTool, StoreError, ToolError, ToolOutput, ToolProvider as _, ToolRequest,
    store::{Approval, BankKind, BankOf, BankStore, BankTool, Decision, DecisionOutcome, Stored, ToolStatistics},
};
use amalgam_protocol::Json;
use amalgam_tools::{Builtin, Egress, OperatorServer, Ports, ToolRegistry, ToolRegistryParts, builtins};
use serde_json::{Value, json};

use crate::calls::{call_of, config, json_of, scope_of, value_of};

/// Tools by tenant; tenant 0 has the common ones.
#[derive(Default)]
pub(crate) struct Bank {
    pub(crate) tools: Mutex<Vec<(i64, BankTool)>>,
    /// How often it was asked.
    pub(crate) asked: AtomicUsize,
}

impl Bank {
    pub(crate) fn put(&self, tenant_id: i64, tool: BankTool) {
        let mut tools = self.tools.lock().unwrap();
        tools.retain(|(owner, known)| (*owner, &known.name) != (tenant_id, &tool.name));
        tools.push((tenant_id, tool));
    }

    fn visible(&self, tenant_id: i64, names: Option<&[String]>) -> Vec<BankTool> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let tools = self.tools.lock().unwrap();
        let own: Vec<&BankTool> = tools.iter().filter(|(owner, _)| *owner == tenant_id).map(|(_, tool)| tool).collect();
        let hidden = |tool: &BankTool| own.iter().any(|own| own.name == tool.name);
        let common = tools.iter().filter(|(owner, tool)| *owner == 0 && !hidden(tool)).map(|(_, tool)| tool);
        let wanted = |tool: &&BankTool| names.is_none_or(|names| names.contains(&tool.name)) && tool.active;
        own.iter().copied().chain(common).filter(wanted).cloned().collect()
    }
}

fn never<'a, T: Send + 'a>() -> Stored<'a, T> {
    Box::pin(async { Err(StoreError::Broken("a registry does not ask this".into())) })
}

impl BankStore for Bank {
    fn tools_for<'a>(&'a self, scope: &'a Scope, names: Option<&'a [String]>) -> Stored<'a, Vec<BankTool>> {
        Box::pin(async move { Ok(self.visible(scope.tenant_id(), names)) })
    }

    fn tools<'a>(&'a self, _: BankOf<'a>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<BankTool>> {
        never()
    }

    fn tool<'a>(&'a self, _: BankOf<'a>, _: &'a str) -> Stored<'a, Option<BankTool>> {
        never()
    }

    fn put_tool<'a>(&'a self, _: BankOf<'a>, _: BankTool, _: AuditDraft) -> Stored<'a, bool> {
        never()
    }

    fn reseal_tool<'a>(&'a self, _: BankOf<'a>, _: &'a str, _: &'a Json, _: &'a Json) -> Stored<'a, bool> {
        never()
    }

    fn delete_tool<'a>(&'a self, _: BankOf<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, bool> {
        never()
    }

    fn tool_statistics<'a>(&'a self, _: Admin<'a>, _: &'a str, _: &'a str, _: u64) -> Stored<'a, ToolStatistics> {
        never()
    }

    fn approval<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Approval>> {
        never()
    }

    fn approval_of_tenant<'a>(&'a self, _: Admin<'a>, _: &'a str) -> Stored<'a, Option<Approval>> {
        never()
    }

    fn approvals<'a>(
        &'a self,
        _: Admin<'a>,
        _: bool,
        _: Option<&'a str>,
        _: usize,
        _: u64,
    ) -> Stored<'a, Vec<Approval>> {
        never()
    }

    fn decide<'a>(&'a self, _: &'a Scope, _: &'a str, _: Decision) -> Stored<'a, Option<DecisionOutcome>> {
        never()
    }

    fn decide_as_admin<'a>(
        &'a self,
        _: Admin<'a>,
        _: &'a str,
        _: Decision,
        _: AuditDraft,
    ) -> Stored<'a, Option<DecisionOutcome>> {
        never()
    }

    fn use_approval<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, bool> {
        never()
    }
}

/// Binds a text to its context and turns it round.
pub(crate) struct Turned;

impl Seal for Turned {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        let turned: String = String::from_utf8_lossy(plain).chars().rev().collect();
        format!("ams2.{context}.{turned}")
    }

    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let turned = sealed.strip_prefix("ams2.")?.strip_prefix(context)?.strip_prefix('.')?;
        Some(turned.chars().rev().collect::<String>().into_bytes())
    }
}

#[derive(Default)]
pub(crate) struct Hands(AtomicU64);

impl Hands {
    pub(crate) fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Clock for Hands {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A registry with everything around it.
pub(crate) struct House {
    pub(crate) bank: Arc<Bank>,
    pub(crate) clock: Arc<Hands>,
    pub(crate) registry: ToolRegistry,
}

impl House {
    /// A registry whose tools may reach these private targets.
    pub(crate) fn reaching(targets: &[String]) -> Self {
        Self::with(Egress::new(config(targets)), BTreeMap::new())
    }

    pub(crate) fn with(egress: Egress, servers: BTreeMap<String, OperatorServer>) -> Self {
        let (bank, clock) = (Arc::new(Bank::default()), Arc::new(Hands::default()));
        let as_clock: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let mut known = builtins(&Ports { clock: Arc::clone(&as_clock), courses: None, knowledge: None });
        known.push(crash());
        let registry = ToolRegistry::new(ToolRegistryParts {
            store: Arc::clone(&bank) as Arc<dyn BankStore>,
            seal: Arc::new(Turned),
            egress: Arc::new(egress),
            builtins: known,
            knowledge: None,
            servers,
            clock: as_clock,
        });
        Self { bank, clock, registry }
    }

    /// Keeps a tool as the administration does: sealed, checked, put.
    pub(crate) async fn keep(&self, tenant_id: i64, tool: BankTool) {
        let scope = scope_of(if tool.common { 1 } else { tenant_id });
        let settings = self.registry.seal_settings(&scope, &tool, None).unwrap();
        let tool = BankTool { settings, ..tool };
        self.registry.check(&scope, &tool).await.unwrap();
        self.bank.put(tenant_id, tool);
    }

    pub(crate) async fn equip(&self, tenant_id: i64, asked: ToolRequest) -> Result<ResolvedTool, Fault> {
        let equipped = self.registry.equip(&scope_of(tenant_id), vec![asked]).await?;
        let [equipped] = <[ResolvedTool; 1]>::try_from(equipped).unwrap();
        Ok(equipped)
    }

    /// The tool of the bank under this name, as a turn of the tenant has it.
    pub(crate) async fn tool(&self, tenant_id: i64, name: &str) -> Option<ServerTool> {
        match self.equip(tenant_id, ToolRequest::Named(name.into())).await.unwrap() {
            ResolvedTool::Server(tool) => Some(*tool),
            ResolvedTool::Unknown => None,
            other => panic!("{other:?}"),
        }
    }

    /// The tools of a server: what is shown, and what may be called.
    pub(crate) async fn listed(
        &self,
        tenant_id: i64,
        server: McpServerRequest,
    ) -> Result<(Value, Vec<ServerTool>), Fault> {
        match self.equip(tenant_id, ToolRequest::Mcp(server)).await? {
            ResolvedTool::Listed { shown, tools } => Ok((value_of(&shown), tools)),
            other => panic!("{other:?}"),
        }
    }
}

/// A built-in tool that refuses every call.
fn crash() -> Builtin {
    amalgam_tools::arguments! {
        struct Nothing {}
    }
    Builtin::new("refuse", "Refuses.", "Never use it.", |_: Nothing, _| {
        Box::pin(async { Err(ToolError::Refused("no".into())) }) as BoxFuture<'_, _>
    })
}

pub(crate) async fn run(tool: &ServerTool, tenant_id: i64, arguments: &str) -> Result<Value, ToolError> {
    let arguments: Json = json_of(arguments);
    let ran = call_of(tenant_id, &arguments, async |call| tool.handler.run(call).await).await;
    ran.map(|ToolOutput { output }| value_of(&output))
}

pub(crate) fn tool(name: &str, kind: BankKind, settings: Value) -> BankTool {
    BankTool {
        name: name.to_owned(),
        common: false,
        description: "What it is for.".to_owned(),
        parameters: json_of(&json!({"type": "object", "properties": {"city": {"type": "string"}}}).to_string()),
        kind,
        settings: json_of(&settings.to_string()),
        guidance: None,
        policy: Policy { requires_approval: Some(Decider::Admin), ..Policy::default() },
        active: true,
        created_at_ms: 1,
        updated_at_ms: 1,
    }
}

pub(crate) fn asked(label: &str, url: Option<String>) -> McpServerRequest {
    McpServerRequest {
        label: label.to_owned(),
        url,
        description: None,
        authorization: None,
        headers: Vec::new(),
        allowed: None,
        approval: ApprovalRule::Always,
    }
}

pub(crate) fn authorized(server: McpServerRequest, token: &str) -> McpServerRequest {
    McpServerRequest { authorization: Some(SecretText(token.to_owned())), ..server }
}
