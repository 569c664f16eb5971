//! The tools of a request that the server runs: those of the tool bank that are requested by name alone, and those of MCP
//! servers. To the model they are functions like all others.

mod approvals;
mod file_search;
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
pub(super) use requested::{RequestedTools, requested, with_operator_approvals};

/// The tools of a request, as the model is offered them and as they are run.
pub(super) struct Toolkit {
    /// A JSON array.
    offered: Json,
    choice: Option<Json>,
    server: HashMap<String, Arc<ServerTool>>,
    of_client: Option<HashSet<String>>,
    listings: Vec<(String, Json)>,
    decided: Vec<Approval>,
    /// What could not be offered.
    pub(super) losses: Vec<Loss>,
    /// How to use those that are offered, as one block of the system prompt. C-25
    pub(super) guidance: Option<String>,
}

/// Finds out what the tools of a request are; nothing where the server has nothing to do with them. `said` is the whole history.
pub(super) async fn equip(
    app: &Application,
    scope: &Scope,
    policy: Option<&TurnPolicy>,
    request: &CreateResponse<'_>,
    requested: RequestedTools,
    said: Option<&Input<'_>>,
) -> Result<Option<Box<Toolkit>>, Fault> {
    let said: &[Item<'_>] = match said {
        Some(Input::Items(items)) => items,
        _ => &[],
    };
    let (which, first) = match policy {
        Some(policy) => (policy.offered, policy.first_tool.as_deref()),
        None => (OfferedTools::All, None),
    };
    let RequestedTools { tools, left_out, own, decided, .. } = requested;
    if decided.is_empty() && tools.is_empty() && left_out.is_empty() && own.is_empty() {
        return Ok(None);
    }
    let (places, wanted): (Vec<usize>, Vec<ToolRequest>) = tools.into_iter().unzip();
    let equipped = match scope.state() {
        _ if wanted.is_empty() => Vec::new(),
        TenantState::Stored => app.toolbox.equip(scope, wanted.clone()).await?.into_iter().map(Ok).collect(),
        TenantState::Stateless => equip_each(app, scope, &wanted).await?,
    };
    let mut offers = offers::Offers::new(&request.tools);
    for index in left_out {
        offers.leave_out_server(index, "a tool of type `mcp` needs a server");
    }
    for ((index, wanted), equipped) in places.into_iter().zip(&wanted).zip(equipped) {
        match equipped {
            Ok(equipped) => offers.equip(index, wanted, equipped, which),
            Err(reason) => offers.leave_out_server(index, reason),
        }
    }
    own.into_iter().for_each(|tool| offers.bring(tool));
    if decided.is_empty() && !offers.has_any() {
        return Ok(None);
    }
    let offered = offers.offered(app.limits.tools)?;
    let choice = match (&request.tool_choice, first.filter(|name| offers.has(name))) {
        (_, Some(name)) => Some(offers::named(name)),
        (Some(choice), None) => Some(offers.choice(choice)?),
        (None, None) => None,
    };
    let shown = |label: &str| said.iter().any(|item| is_listing(item, label));
    let searched =
        said.iter().any(|item| matches!(item.kind, ItemKind::AdditionalTools(_) | ItemKind::ClientCallOutput(..)));
    let offers::Offers { server, of_client, listings, losses, guidance, .. } = offers;
    Ok(Some(Box::new(Toolkit {
        guidance: tool_usage_block(guidance.iter().map(|(name, guidance)| (name.as_str(), guidance.as_str()))),
        offered,
        choice,
        server,
        of_client: (!searched).then_some(of_client),
        listings: listings.into_iter().filter(|(label, _)| !shown(label)).collect(),
        decided,
        losses,
    })))
}

/// What each of these is, or why the model does not hear of it: in a stateless tenant, a request succeeds without the MCP
/// servers that cannot be used. RAM-23
async fn equip_each(
    app: &Application,
    scope: &Scope,
    wanted: &[ToolRequest],
) -> Result<Vec<Result<ResolvedTool, Cow<'static, str>>>, Fault> {
    let each = wanted.iter().map(async |one| match app.toolbox.equip(scope, vec![one.clone()]).await {
        Ok(equipped) => Ok(Ok(equipped.into_iter().next().unwrap_or(ResolvedTool::Unknown))),
        Err(fault) if matches!(one, ToolRequest::Mcp(_)) && is_the_servers(fault.kind) => {
            Ok(Err(fault.message.clone()))
        }
        Err(fault) => Err(fault),
    });
    join_all(each).await.into_iter().collect()
}

fn is_the_servers(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::ToolServer | FaultKind::Invalid)
}

fn is_listing(item: &Item<'_>, label: &str) -> bool {
    matches!(item.kind, ItemKind::Hosted(HostedItem::McpListTools))
        && item.raw.get_str("server_label").as_deref() == Some(label)
}

/// What of a turn its prompt is made from.
pub(super) struct Basis<'a> {
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
    /// Everything that the turn needs to run its tools; with the most calls that the caller wants, and whether they may run at
    /// the same time.
    pub(super) fn into_turn_tools(
        self,
        app: &Application,
        scope: &Scope,
        (max_calls, parallel): (Option<u64>, Option<bool>),
        policy: Option<&TurnPolicy>,
        basis: Basis<'_>,
    ) -> Result<Box<TurnTools>, Fault> {
        let prompt = TurnPrompt {
            parameters: offered(basis.parameters, self.offered, self.choice)?,
            before: basis.context.before().to_vec(),
            own: basis.context.own().cloned(),
            candidates: basis.candidates.to_vec(),
            seal: Arc::clone(&app.seal),
            seal_context: scope.seal_context(),
            delivery: basis.delivery,
            strict: basis.strict,
            kept: basis.stored,
            memory: basis.context.memory.clone(),
            losses: basis.losses.to_vec(),
            prompt: basis.prompt.cloned(),
        };
        Ok(Box::new(TurnTools {
            scope: scope.clone(),
            tools: self.server,
            of_client: self.of_client,
            one_by_one: parallel == Some(false),
            rounds: policy.and_then(|policy| policy.max_rounds),
            limit_each_call: policy.is_some_and(|policy| policy.limit_each_call),
            max_calls: max_calls.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            listings: self.listings,
            decided: self.decided,
            prompt: Arc::new(prompt),
        }))
    }
}

/// The parameters with the tools as the model is offered them.
fn offered(parameters: &ResponseParameters, tools: Json, choice: Option<Json>) -> Result<ResponseParameters, Fault> {
    let searches_upstream =
        Tool::list(tools.raw())?.iter().any(|tool| matches!(tool.kind, ToolKind::Hosted(HostedTool::FileSearch, _)));
    // Calls are counted by the engine, over all rounds.
    let mut offered = ResponseParameters { tool_choice: choice, max_tool_calls: None, ..parameters.clone() };
    offered.tools = Some(tools);
    // Where the search is the server's, so are its results: the upstream has none to include.
    if !searches_upstream {
        offered.include.retain(|name| name != FILE_SEARCH_RESULTS);
    }
    // Reasoning has to be sent back in the next round.
    offered.include_sealed_reasoning();
    Ok(offered)
}
