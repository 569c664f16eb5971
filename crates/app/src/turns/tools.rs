//! The server-run tools of a request: tools of the bank, requested only by name, and tools of MCP servers. The model
//! sees all of them as functions.

mod approvals;
mod offers;
mod requested;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use amalgam_core::{
    Candidate, Delivery, Fault, FaultKind, Loss, ResolvedTool, Scope, ServerTool, SystemPrompt, TenantState,
    ToolRequest, file_search::FILE_SEARCH_RESULTS, store::Approval, tool_usage_block,
};
use amalgam_engine::{TurnPrompt, TurnTools};
use amalgam_protocol::{
    CreateResponse, HostedItem, HostedTool, Input, Item, ItemKind, Json, ResponseParameters, Tool, ToolKind,
};
use futures_util::future::join_all;

use super::{
    context::Context,
    request::{OfferedTools, TurnPolicy},
};
use crate::app::Application;

pub(super) use approvals::approved;
pub(super) use offers::PermittedTools;
pub(super) use requested::{RequestedTools, requested, with_operator_approvals};

/// The tools of a request, as offered to the model and as run.
pub(super) struct Toolkit {
    /// A JSON array.
    offered: Json,
    choice: Option<Json>,
    server: HashMap<String, Arc<ServerTool>>,
    client_functions: Option<HashSet<String>>,
    listings: Vec<(String, Json)>,
    approved: Vec<Approval>,
    /// The tools that could not be offered.
    pub(super) losses: Vec<Loss>,
    /// The guidance for the offered tools, as one block of the system prompt. C-25
    pub(super) guidance: Option<String>,
}

/// Resolves the tools of a request; none if the server has nothing to run. `input` is the whole history.
pub(super) async fn equip(
    app: &Application,
    scope: &Scope,
    policy: Option<&TurnPolicy>,
    request: &CreateResponse<'_>,
    requested: RequestedTools,
    input: Option<&Input<'_>>,
    allowed: Option<PermittedTools<'_>>,
) -> Result<Option<Box<Toolkit>>, Fault> {
    let input: &[Item<'_>] = match input {
        Some(Input::Items(items)) => items,
        _ => &[],
    };
    let (offered_tools, first) = match policy {
        Some(policy) => (policy.offered, policy.first_tool.as_deref()),
        None => (OfferedTools::All, None),
    };
    let RequestedTools { tools, left_out, own, approved, .. } = requested;
    if approved.is_empty() && tools.is_empty() && left_out.is_empty() && own.is_empty() {
        return Ok(None);
    }
    let (places, tool_requests): (Vec<usize>, Vec<ToolRequest>) = tools.into_iter().unzip();
    let equipped = match scope.state() {
        _ if tool_requests.is_empty() => Vec::new(),
        TenantState::Stored => app.toolbox.equip(scope, tool_requests.clone()).await?.into_iter().map(Ok).collect(),
        TenantState::Stateless => equip_each(app, scope, &tool_requests).await?,
    };
    let mut offers = offers::Offers::new(&request.tools, allowed);
    for index in left_out {
        offers.leave_out_server(index, "a tool of type `mcp` needs a server");
    }
    for ((index, tool_request), equipped) in places.into_iter().zip(&tool_requests).zip(equipped) {
        match equipped {
            Ok(equipped) => offers.equip(index, tool_request, equipped, offered_tools),
            Err(reason) => offers.leave_out_server(index, reason),
        }
    }
    own.into_iter().for_each(|tool| offers.add_own(tool));
    if approved.is_empty() && !offers.is_changed() {
        return Ok(None);
    }
    let offered = offers.offered(app.limits.tools)?;
    let choice = match (&request.tool_choice, first.filter(|name| offers.has(name))) {
        (_, Some(name)) => Some(offers::named(name)),
        (Some(choice), None) => Some(offers.choice(choice)?),
        (None, None) => None,
    };
    let shown = |label: &str| input.iter().any(|item| is_listing(item, label));
    let searched =
        input.iter().any(|item| matches!(item.kind, ItemKind::AdditionalTools(_) | ItemKind::ClientCallOutput(..)));
    let offers::Offers { server, client_functions, listings, losses, guidance, .. } = offers;
    Ok(Some(Box::new(Toolkit {
        guidance: tool_usage_block(guidance.iter().map(|(name, guidance)| (name.as_str(), guidance.as_str()))),
        offered,
        choice,
        server,
        client_functions: (!searched).then_some(client_functions),
        listings: listings.into_iter().filter(|(label, _)| !shown(label)).collect(),
        approved,
        losses,
    })))
}

/// Resolves each tool, or gives the reason why it is left out: in a stateless tenant, a request succeeds without MCP
/// servers that are unavailable. RAM-23
async fn equip_each(
    app: &Application,
    scope: &Scope,
    tool_requests: &[ToolRequest],
) -> Result<Vec<Result<ResolvedTool, Cow<'static, str>>>, Fault> {
    let resolved = tool_requests.iter().map(async |tool_request| {
        match app.toolbox.equip(scope, vec![tool_request.clone()]).await {
            Ok(equipped) => Ok(Ok(equipped.into_iter().next().unwrap_or(ResolvedTool::Unknown))),
            Err(fault) if matches!(tool_request, ToolRequest::Mcp(_)) && is_server_fault(fault.kind) => {
                Ok(Err(fault.message.clone()))
            }
            Err(fault) => Err(fault),
        }
    });
    join_all(resolved).await.into_iter().collect()
}

fn is_server_fault(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::ToolServer | FaultKind::Invalid)
}

fn is_listing(item: &Item<'_>, label: &str) -> bool {
    matches!(item.kind, ItemKind::Hosted(HostedItem::McpListTools))
        && item.raw.get_str("server_label").as_deref() == Some(label)
}

/// The parts of a turn that its prompt is made from.
pub(super) struct PromptParts<'a> {
    pub(super) parameters: &'a ResponseParameters,
    pub(super) context: &'a Context,
    pub(super) candidates: &'a [Candidate],
    pub(super) delivery: Delivery,
    pub(super) strict: bool,
    pub(super) stored: bool,
    pub(super) losses: &'a [Loss],
    pub(super) prompt: Option<&'a SystemPrompt>,
}

impl Toolkit {
    /// Builds what the turn needs to run its tools; `limits` are the caller's maximum number of calls, and whether they
    /// may run in parallel.
    pub(super) fn into_turn_tools(
        self,
        app: &Application,
        scope: &Scope,
        (max_calls, parallel): (Option<u64>, Option<bool>),
        policy: Option<&TurnPolicy>,
        parts: PromptParts<'_>,
    ) -> Result<Box<TurnTools>, Fault> {
        let prompt = TurnPrompt {
            parameters: offered(parts.parameters, self.offered, self.choice)?,
            before: parts.context.before().to_vec(),
            own: parts.context.own().cloned(),
            candidates: parts.candidates.to_vec(),
            seal: Arc::clone(&app.seal),
            seal_context: scope.seal_context(),
            delivery: parts.delivery,
            strict: parts.strict,
            stored: parts.stored,
            memory: parts.context.memory.clone(),
            losses: parts.losses.to_vec(),
            prompt: parts.prompt.cloned(),
        };
        Ok(Box::new(TurnTools {
            scope: scope.clone(),
            tools: self.server,
            client_functions: self.client_functions,
            sequential: parallel == Some(false),
            rounds: policy.and_then(|policy| policy.max_rounds),
            limit_each_call: policy.is_some_and(|policy| policy.limit_each_call),
            max_calls: max_calls.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            listings: self.listings,
            approved: self.approved,
            prompt: Arc::new(prompt),
        }))
    }
}

/// The parameters with the tools as offered to the model.
fn offered(parameters: &ResponseParameters, tools: Json, choice: Option<Json>) -> Result<ResponseParameters, Fault> {
    let searches_upstream =
        Tool::list(tools.raw())?.iter().any(|tool| matches!(tool.kind, ToolKind::Hosted(HostedTool::FileSearch, _)));
    // The engine counts calls over all rounds.
    let mut offered = ResponseParameters { tool_choice: choice, max_tool_calls: None, ..parameters.clone() };
    offered.tools = Some(tools);
    // If the server runs the search, the upstream has no results to include.
    if !searches_upstream {
        offered.include.retain(|name| name != FILE_SEARCH_RESULTS);
    }
    // The next round has to send reasoning back.
    offered.include_sealed_reasoning();
    Ok(offered)
}
