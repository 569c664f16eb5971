//! The parts of a request that further rounds of a turn need, owned: the server-run tools and the prompt.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use amalgam_core::{
    CallHead, CallKind, Candidate, Delivery, Entry, Fault, History, Loss, Scope, Seal, ServerTool, SystemPrompt,
    UpstreamMemory, compaction, joined, normalise_rounds, read_items, store::Approval, turn::Caps,
};
use amalgam_protocol::{
    AllowedTools, Content, CreateResponse, Json, Raw, ResponseParameters, Role, ToolChoice, Writer,
};

use crate::{
    call_record::CallRecord,
    engine::Engine,
    model_call::{AcceptedCall, ModelCall},
};

/// Limits of server-run tools.
#[derive(Debug, Clone, Copy)]
pub struct ToolLimits {
    /// Limits of one turn.
    pub caps: Caps,
    /// Calls of one turn that run at the same time.
    pub parallel: usize,
    /// The largest output of one call.
    pub output_bytes: usize,
    /// How long a call waits for an approval.
    pub approval_deadline: Duration,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self {
            caps: Caps::default(),
            parallel: 8,
            output_bytes: 256 * 1024,
            approval_deadline: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// The server-run tools of one turn.
#[derive(Debug)]
pub struct TurnTools {
    /// The caller for whom the tools run.
    pub scope: Scope,
    /// Tools by the name that the model calls.
    pub tools: HashMap<String, Arc<ServerTool>>,
    /// Names of the client's functions; `None` if the client may have functions that the request does not name.
    pub client_functions: Option<HashSet<String>>,
    /// Whether calls run one after the other.
    pub sequential: bool,
    /// The maximum number of rounds, if it differs from the process's limit.
    pub rounds: Option<u32>,
    /// Whether the limit of output tokens applies to each model call instead of to the whole turn.
    pub limit_each_call: bool,
    /// The caller's limit of calls.
    pub max_calls: Option<u32>,
    /// Tool lists of MCP servers that the response shows: label and a JSON array.
    pub listings: Vec<(String, Json)>,
    /// Calls that were approved since the model asked for them.
    pub approved: Vec<Approval>,
    /// The prompt of every round.
    pub prompt: Arc<TurnPrompt>,
}

impl TurnTools {
    /// Whether the server handles a call: it names a server-run tool, or a tool that was not offered.
    pub(crate) fn is_server_call(&self, call: &CallHead) -> bool {
        let plain = call.kind == CallKind::Function && call.namespace.is_none();
        plain
            && (self.tools.contains_key(&call.name)
                || self.client_functions.as_ref().is_some_and(|names| !names.contains(&call.name)))
    }

    /// The tool that an approved call names.
    pub(crate) fn named(&self, label: &str, own_name: &str) -> Option<&Arc<ServerTool>> {
        self.tools.values().find(|tool| tool.label == label && tool.own_name == own_name)
    }
}

/// A request and its context, so that the model can be called again.
pub struct TurnPrompt {
    /// The parameters, with the tools as they are offered to the model.
    pub parameters: ResponseParameters,
    /// The history before the request, as arrays of items.
    pub before: Vec<Json>,
    /// The request's own items, if they differ from what the caller sent.
    pub own: Option<Json>,
    /// The candidates, in order of preference.
    pub candidates: Vec<Candidate>,
    /// Opens values that were sealed for this caller.
    pub seal: Arc<dyn Seal>,
    /// The tenant and user that sealed values are bound to.
    pub seal_context: String,
    /// Whether the caller receives a stream or a whole answer.
    pub delivery: Delivery,
    /// Whether a loss fails the turn.
    pub strict: bool,
    /// Whether the response is stored.
    pub stored: bool,
    /// What an upstream stores of the history.
    pub memory: Option<UpstreamMemory>,
    /// Losses before the first model call.
    pub losses: Vec<Loss>,
    /// Replaces the request's instructions, if the server has composed a prompt.
    pub prompt: Option<SystemPrompt>,
}

impl std::fmt::Debug for TurnPrompt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TurnPrompt")
    }
}

/// The items that a further round adds to a prompt.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Output items of each earlier round.
    pub(crate) earlier: Vec<Vec<Json>>,
    /// Instructions after the last item.
    pub(crate) instructions: Vec<String>,
    /// Whether the model may call tools.
    pub(crate) allow_tools: bool,
    /// Whether a required `tool_choice` becomes `auto`, because the model was called before.
    pub(crate) relax_tool_choice: bool,
    /// The rest of the caller's limit of output tokens.
    pub(crate) output_tokens: Option<u64>,
}

impl TurnPrompt {
    /// Calls the model with the items of the earlier rounds.
    pub(crate) async fn call(
        &self,
        engine: &Engine,
        scope: &Scope,
        round: &Round,
        call_record: &mut CallRecord,
    ) -> Result<AcceptedCall, Fault> {
        let request = self.request(round)?;
        let instructions = array_of_texts(&round.instructions);
        let history = self.history(&request, &round.earlier, instructions.raw())?;
        let call = ModelCall {
            scope,
            candidates: &self.candidates,
            parameters: &self.parameters,
            request: &request,
            history: &history,
            delivery: self.delivery,
            seal_context: &self.seal_context,
            strict: self.strict,
            stored: self.stored,
            memory: self.memory.as_ref(),
            losses: self.losses.clone(),
            announcement: None,
        };
        let accepted = engine.call_model(&call, call_record).await?;
        call_record.set_losses(&accepted.losses);
        Ok(accepted)
    }

    fn request(&self, round: &Round) -> Result<CreateResponse<'_>, Fault> {
        let mut request = self.parameters.view().map_err(Fault::internal)?;
        if !round.allow_tools {
            request.tool_choice = Some(ToolChoice::None);
        } else if round.relax_tool_choice {
            request.tool_choice = request.tool_choice.map(relaxed);
        }
        if round.output_tokens.is_some() {
            request.max_output_tokens = round.output_tokens;
        }
        Ok(request)
    }

    fn history<'a>(
        &'a self,
        request: &CreateResponse<'a>,
        rounds: &'a [Vec<Json>],
        instructions: Raw<'a>,
    ) -> Result<History<'a>, Fault> {
        let earlier = joined(&self.before, self.own.as_ref(), request.input.as_ref())?;
        let rounds = rounds.iter().map(|round| read_items(round.iter().map(Json::raw)));
        let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
        let input = earlier.as_ref().or(request.input.as_ref());
        let mut history = normalise_rounds(request.instructions.as_ref(), input, &rounds);
        compaction::open_all(&mut history, &*self.seal, &self.seal_context)
            .map_err(|_| Fault::internal("a compacted summary cannot be opened"))?;
        if let Some(prompt) = &self.prompt {
            prompt.apply(&mut history);
        }
        history.entries.extend(instructions.elements().filter_map(Raw::as_str).map(|text| Entry::Message {
            role: Role::Developer,
            content: Content::Text(text),
            item: None,
        }));
        Ok(history)
    }
}

fn array_of_texts(texts: &[String]) -> Json {
    let mut writer = Writer::default();
    writer.array(|writer| texts.iter().for_each(|text| writer.string(text)));
    Json::from_writer(writer)
}

/// The choice without a requirement: a model that must call a tool in every round never answers. C-30
fn relaxed(choice: ToolChoice<'_>) -> ToolChoice<'_> {
    match choice {
        ToolChoice::None => ToolChoice::None,
        ToolChoice::Allowed(AllowedTools { tools, .. }) => ToolChoice::Allowed(AllowedTools { required: false, tools }),
        ToolChoice::Auto
        | ToolChoice::Required
        | ToolChoice::Function(..)
        | ToolChoice::Custom(..)
        | ToolChoice::Mcp { .. }
        | ToolChoice::Client(..)
        | ToolChoice::Hosted(..) => ToolChoice::Auto,
    }
}
