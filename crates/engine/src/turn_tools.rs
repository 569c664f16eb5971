//! What a turn needs in order to go on by itself: the tools that the server runs, and everything that was said, owned.

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
    model_call::{Accepted, ModelCall},
    run::Engine,
};

/// How tools run.
#[derive(Debug, Clone, Copy)]
pub struct ToolLimits {
    /// What one turn may take.
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

/// The tools of one turn.
#[derive(Debug)]
pub struct TurnTools {
    /// On whose behalf they run.
    pub scope: Scope,
    /// By the name that the model calls.
    pub tools: HashMap<String, Arc<ServerTool>>,
    /// The functions that the client runs; none where it may have further ones that are not named in the request.
    pub of_client: Option<HashSet<String>>,
    /// Whether calls run one after the other.
    pub one_by_one: bool,
    /// The most rounds, where it is not the process's own limit.
    pub rounds: Option<u32>,
    /// Whether the limit of output bounds every call of the model, instead of all calls of the turn together.
    pub limit_each_call: bool,
    /// The most calls that the caller wants.
    pub max_calls: Option<u32>,
    /// What is shown of MCP servers: the label and a JSON array of tools.
    pub listings: Vec<(String, Json)>,
    /// Calls that were approved since they were asked for.
    pub decided: Vec<Approval>,
    /// What is asked in every round.
    pub prompt: Arc<TurnPrompt>,
}

impl TurnTools {
    /// Whether a call is the server's to deal with: one of its tools, or one that was not offered.
    pub(crate) fn is_ours(&self, call: &CallHead) -> bool {
        let plain = call.kind == CallKind::Function && call.namespace.is_none();
        plain
            && (self.tools.contains_key(&call.name)
                || self.of_client.as_ref().is_some_and(|names| !names.contains(&call.name)))
    }

    /// The tool that a decided call names.
    pub(crate) fn named(&self, label: &str, own_name: &str) -> Option<&Arc<ServerTool>> {
        self.tools.values().find(|tool| tool.label == label && tool.own_name == own_name)
    }
}

/// A request and everything that it builds on, so that a model can be asked again.
pub struct TurnPrompt {
    /// What the model is asked, and how; with the tools as they are offered.
    pub parameters: ResponseParameters,
    /// What was said before, arrays of items.
    pub before: Vec<Json>,
    /// The request's own items, where they are not as they were sent.
    pub own: Option<Json>,
    /// Who may answer, in this order.
    pub candidates: Vec<Candidate>,
    /// Opens what was sealed for this caller.
    pub seal: Arc<dyn Seal>,
    /// Whom sealed content is bound to.
    pub seal_context: String,
    /// How the caller wants its answer.
    pub delivery: Delivery,
    /// Whether a loss is a fault.
    pub strict: bool,
    /// Whether the response is kept.
    pub kept: bool,
    /// What an upstream keeps of what was said before.
    pub memory: Option<UpstreamMemory>,
    /// What was lost before any model was asked.
    pub losses: Vec<Loss>,
    /// The prompt in the place of the request's instructions, where the server has composed one.
    pub prompt: Option<SystemPrompt>,
}

impl std::fmt::Debug for TurnPrompt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TurnPrompt")
    }
}

/// What another round adds to a plan.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Items of the rounds before, each round apart.
    pub(crate) said: Vec<Vec<Json>>,
    /// What the model is told at the end.
    pub(crate) instructions: Vec<String>,
    /// Whether it may call tools.
    pub(crate) tools: bool,
    /// Whether it is free to call them, because it has called one before.
    pub(crate) free: bool,
    /// Tokens that are left of what the caller allows.
    pub(crate) output_tokens: Option<u64>,
}

impl TurnPrompt {
    /// Asks once more.
    pub(crate) async fn ask(
        &self,
        engine: &Engine,
        scope: &Scope,
        round: &Round,
        calling: &mut CallRecord,
    ) -> Result<Accepted, Fault> {
        let request = self.request(round)?;
        let told = array_of_texts(&round.instructions);
        let history = self.history(&request, &round.said, told.raw())?;
        let question = ModelCall {
            scope,
            candidates: &self.candidates,
            parameters: &self.parameters,
            request: &request,
            history: &history,
            delivery: self.delivery,
            seal_context: &self.seal_context,
            strict: self.strict,
            kept: self.kept,
            memory: self.memory.as_ref(),
            losses: self.losses.clone(),
            announcement: None,
        };
        let accepted = engine.ask_in_turn(&question, calling).await?;
        calling.accepted(&accepted.losses);
        Ok(accepted)
    }

    fn request(&self, round: &Round) -> Result<CreateResponse<'_>, Fault> {
        let mut request = self.parameters.view().map_err(Fault::internal)?;
        if !round.tools {
            request.tool_choice = Some(ToolChoice::None);
        } else if round.free {
            request.tool_choice = request.tool_choice.map(set_free);
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
        let said = joined(&self.before, self.own.as_ref(), request.input.as_ref())?;
        let rounds = rounds.iter().map(|round| read_items(round.iter().map(Json::raw)));
        let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
        let input = said.as_ref().or(request.input.as_ref());
        let mut history = normalise_rounds(request.instructions.as_ref(), input, &rounds);
        compaction::open_all(&mut history, &*self.seal, &self.seal_context)
            .map_err(|_| Fault::internal("a summary that was open is closed"))?;
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

/// The same choice without a must: a model that has to call a tool each time never answers. C-30
fn set_free(choice: ToolChoice<'_>) -> ToolChoice<'_> {
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
