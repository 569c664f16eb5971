//! Composes a submission into the parameters of a turn, by the rules of AGN-003.

use amalgam_assistant::settings::Origin;
use amalgam_core::{
    Fault, RetrievalQuery, Scope, TurnStep,
    store::{AgentSession, FoundChunk, Mode},
};
use amalgam_execute::{
    attachments,
    composition::{ComposeBlocks, ComposeRequest, Composition, ConversationContext},
    context::{self, Chunk, ContextBlock},
    modes,
    request::{Continuation, UserTurn},
    results,
};
use amalgam_protocol::{Json, ResponseParameters};
use tokio::time::Instant;

use super::answer::Notes;
use crate::{
    app::Application,
    assistant::{Agent, require_enabled, write_named_tool},
    turns::add_step,
};

/// The tool that changes a session's mode.
pub(super) const CHANGE_MODE: &str = "change_mode";

/// The maximum length of a retrieval query, in characters.
const QUERY_CHARS: usize = 4_000;

/// The agent of a turn in its mode.
pub(super) struct AgentInMode {
    pub(super) agent: Agent,
    pub(super) mode: Mode,
    /// All modes of the tenant.
    pub(super) modes: Vec<Mode>,
    /// The names of the agent's tools.
    tools: Vec<String>,
    /// The system message of each turn: the agent's prompt and the mode's. Tool guidance is appended when tools are
    /// offered.
    system: Option<Json>,
}

impl AgentInMode {
    /// The agent that answers in a session. `requested` is the agent that the turn names instead of the session's.
    pub(super) async fn of(
        app: &Application,
        scope: &Scope,
        session: &AgentSession,
        requested: Option<&str>,
    ) -> Result<Self, Fault> {
        // An agent that was deleted is replaced by the tenant's default.
        let agent = Agent::of(app, scope, requested.or(session.profile.as_deref())).await?;
        if agent.profile.is_some() {
            require_enabled(app, scope).await?;
        }
        let agent = without_chat_limits(app, agent);
        let own = app.store.modes(scope).await?;
        let default_mode = || modes::find(amalgam_execute::composition::DEFAULT_MODE, &own);
        let mode = modes::find(&session.mode, &own).or_else(default_mode);
        let mode = mode.ok_or_else(|| Fault::internal("there is no mode to begin with"))?;
        let tools = tools(&agent, &mode);
        let prompt = agent.prompt_text();
        let prompts = [prompt.as_str(), &mode.system_prompt];
        let system = prompts.iter().any(|text| !text.trim().is_empty()).then(|| {
            let composition = Composition {
                context: ConversationContext { system: &prompt, ..ConversationContext::default() },
                request: ComposeRequest { system_prompt: Some(&mode.system_prompt), ..ComposeRequest::default() },
                ..Composition::default()
            };
            composition.system_item()
        });
        Ok(Self { agent, mode, modes: modes::all(&own), tools, system })
    }

    /// The tool that the model has to call first in a user's turn: the mode's, or else the agent's. R003-40
    pub(super) fn first_tool(&self) -> Option<String> {
        self.mode.tool_choice.clone().or_else(|| self.agent.first_tool())
    }

    /// The maximum number of tool rounds, if one is set.
    pub(super) fn rounds(&self) -> Option<u32> {
        let rounds = &self.agent.resolved.max_tool_iterations;
        (rounds.origin != Origin::Default).then(|| u32::try_from(rounds.value).unwrap_or(u32::MAX))
    }

    /// The parameters of a user's turn.
    pub(super) fn user_turn(
        &self,
        turn: &UserTurn<'_>,
        files: &[Json],
        solution_context: Option<&str>,
        context: Option<&ContextBlock>,
        fields: &RequestFields<'_>,
    ) -> ResponseParameters {
        let mut parts = attachments::parts(turn, solution_context);
        parts.extend_from_slice(files);
        let composition = Composition {
            request: ComposeRequest {
                mode: &self.mode.name,
                instruction: turn.instruction.as_deref().unwrap_or_default(),
                ..ComposeRequest::default()
            },
            blocks: ComposeBlocks {
                rag_context_block: context.map(|context| context.text.as_str()),
                ..ComposeBlocks::default()
            },
            attachments: &parts,
            ..Composition::default()
        };
        self.parameters(&[composition.user_item()], fields)
    }

    /// The parameters of a continuation: only the tool results. C-07
    pub(super) fn continuation(
        &self,
        continuation: &Continuation<'_>,
        fields: &RequestFields<'_>,
    ) -> ResponseParameters {
        let items: Vec<Json> = continuation.results.iter().map(results::output_item).collect();
        self.parameters(&items, fields)
    }

    fn parameters(&self, items: &[Json], fields: &RequestFields<'_>) -> ResponseParameters {
        let mut parameters = ResponseParameters {
            model: Some(self.agent.resolved.model.value.clone()),
            previous_response_id: fields.parent.map(ToOwned::to_owned),
            instructions: self.system.as_ref().map(|system| Json::array(|writer| writer.raw(system.raw()))),
            input: Some(Json::array(|writer| items.iter().for_each(|item| writer.raw(item.raw())))),
            tools: Some(Json::array(|writer| self.tools.iter().for_each(|name| write_named_tool(writer, name)))),
            stream: Some(fields.streamed),
            metadata: Some(Json::object(|writer| {
                writer.key("session_id").string(fields.session_id);
                writer.key("turn_id").string(fields.turn_id);
                writer.key("mode").string(&self.mode.name);
            })),
            ..ResponseParameters::default()
        };
        self.agent.apply_terms(&mut parameters);
        parameters
    }
}

/// Removes the default limits on the length and duration of an answer, which are for chats and too small for writing
/// code. Unless the tenant or the profile sets them, the model and the turn's deadline decide.
fn without_chat_limits(app: &Application, mut agent: Agent) -> Agent {
    let resolved = &mut agent.resolved;
    if resolved.max_output_tokens.origin == Origin::Default {
        resolved.max_output_tokens.value = None;
    }
    if resolved.request_timeout.origin == Origin::Default {
        resolved.request_timeout.value = app.engine.turn_deadline();
    }
    agent
}

/// The fields of a request besides its items.
pub(super) struct RequestFields<'a> {
    pub(super) session_id: &'a str,
    pub(super) turn_id: &'a str,
    pub(super) parent: Option<&'a str>,
    pub(super) streamed: bool,
}

/// The tools of an agent in its mode, without duplicates.
fn tools(agent: &Agent, mode: &Mode) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in agent.profile.iter().flat_map(|profile| &profile.tools).chain(&mode.tools) {
        if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) && name != CHANGE_MODE {
            names.push(name.clone());
        }
    }
    names
}

/// Retrieves the tenant's knowledge about an instruction, and records the sources in `notes`. The turn's own conditions
/// take precedence over the mode's. R034-11
pub(super) async fn retrieve_context(
    app: &Application,
    scope: &Scope,
    turn: &UserTurn<'_>,
    mode: &Mode,
    notes: &mut Notes,
) -> Result<Option<ContextBlock>, Fault> {
    let Some(instruction) = turn.instruction.as_deref().filter(|_| app.execute.context_tokens > 0) else {
        return Ok(None);
    };
    let of_mode;
    let conditions = match turn.scope.as_slice() {
        [] => {
            of_mode = modes::conditions(mode.rag_scope.raw()).unwrap_or_default();
            &of_mode
        }
        own => own,
    };
    let text = instruction.get(..instruction.floor_char_boundary(QUERY_CHARS)).unwrap_or_default();
    let limit = context::candidates_for(context::DEFAULT_CHUNKS);
    let started = Instant::now();
    let found = app.knowledge.find(scope, RetrievalQuery { text, collections: &[], conditions, limit }).await?;
    add_step(scope, TurnStep::Retrieval, started);
    notes.warnings.extend(found.warnings);
    let chosen = context::select(found.chunks.iter().map(chunk).collect(), context::DEFAULT_CHUNKS);
    let block = context::block(&chosen, app.execute.context_tokens, |text| (text.len() as u64).div_ceil(4));
    if let Some(block) = &block {
        notes.sources.clone_from(&block.sources);
        notes.warnings.extend(block.warning());
    }
    Ok(block)
}

fn chunk(found: &FoundChunk) -> Chunk<'_> {
    Chunk {
        id: found.id.as_str().into(),
        path: found.path.as_str().into(),
        symbol: found.symbol.as_deref().map(Into::into),
        start_line: found.start_line,
        end_line: found.end_line,
        language: Some(found.language.as_str().into()),
        content: found.content.as_str().into(),
        score: found.score,
    }
}
