//! Makes a prompt fit its model: counts it against the window, leaves out the oldest turns where the caller allows that,
//! and refuses what cannot fit before anybody is asked.

use std::{collections::HashMap, sync::Arc};

use amalgam_core::{
    Candidate, Chain, ConversationDigest, Fault, History, Loss, ModelError, ModelRequest, PreparedRequest, TokenCount,
    UpstreamRetention,
    window::{self, CountableText},
};
use tracing::debug;

use crate::{model_call::ModelCall, run::Engine, upstream_state::UpstreamState};

/// How often an upstream that says no more than "too long" is asked again, each time with half of the turns.
const HALVINGS: u32 = 4;

impl Engine {
    /// The tokens of a prompt, by our own count. Takes a place as a turn does: it is work.
    pub async fn count(&self, candidate: &Candidate, prepared: PreparedRequest) -> Result<TokenCount, Fault> {
        let place = self.admission.enter()?;
        let model = Arc::clone(&candidate.model);
        counted(move || {
            let _place = place;
            model.count(&prepared)
        })
        .await
    }

    /// The weight of each of these, by the same count.
    pub async fn weigh(&self, candidate: &Candidate, spoken: Vec<CountableText>) -> Result<Vec<u64>, Fault> {
        let place = self.admission.enter()?;
        let (model, name) = (Arc::clone(&candidate.model), candidate.name.clone());
        counted(move || {
            let _place = place;
            spoken.iter().map(|spoken| spoken.weight(|text| model.count_text(&name, text))).collect()
        })
        .await
    }
}

/// One candidate's prompt.
pub(crate) struct FittedPrompt<'a> {
    call: &'a ModelCall<'a>,
    candidate: &'a Candidate,
    /// Images that were fetched, as `data:` URIs by their address.
    images: HashMap<String, String>,
    /// What is left of the history, where something had to go.
    shortened: Option<History<'a>>,
    halvings: u32,
    /// How the call stands to those before it.
    chain: Chain<'a>,
}

impl<'a> FittedPrompt<'a> {
    pub(crate) fn new(call: &'a ModelCall<'a>, candidate: &'a Candidate, images: HashMap<String, String>) -> Self {
        Self { call, candidate, images, shortened: None, halvings: 0, chain: chain(call, candidate) }
    }

    /// The prompt, as much of it as fits; a fault when it cannot fit.
    pub(crate) async fn prepare(&mut self) -> Result<PreparedRequest, Fault> {
        let Chain::Continue { .. } = self.chain else { return self.prepare_whole().await };
        if self.candidate.context_window.is_some() {
            // What is known to the upstream takes its room there too.
            let chain = std::mem::replace(&mut self.chain, Chain::Start);
            let whole = self.prepare_whole().await?;
            if self.shortened.is_some() {
                return Ok(whole);
            }
            self.chain = chain;
        }
        self.translate()
    }

    async fn prepare_whole(&mut self) -> Result<PreparedRequest, Fault> {
        let prepared = self.translate()?;
        let Some(window) = self.candidate.context_window else { return Ok(prepared) };
        let room = window::room(window, self.call.request.max_output_tokens);
        // A token has at least one byte, so that most prompts need not be counted.
        if self.bytes(&prepared) <= room {
            return Ok(prepared);
        }
        let count = self.count(&prepared).await?;
        if !self.may_shorten() || count.total() <= room {
            window::refuse(count, window, self.may_shorten())?;
            return Ok(prepared);
        }
        let weights = self.weigh().await?;
        // Tools and whatever else cannot be left out.
        let fixed = count.total().saturating_sub(weights.iter().sum());
        let mut weights = weights.into_iter();
        let fitted = window::fit(self.call.history, room.saturating_sub(fixed), |_| weights.next().unwrap_or_default());
        if fitted.is_none() {
            window::refuse(count, window, self.may_shorten())?;
            return Ok(prepared);
        }
        self.shortened = fitted;
        let prepared = self.translate()?;
        window::refuse(self.count(&prepared).await?, window, self.may_shorten())?;
        Ok(prepared)
    }

    /// The whole prompt after the upstream has said that it does not know what this one goes on from.
    pub(crate) fn anew(&mut self, error: &ModelError) -> Option<Result<PreparedRequest, Fault>> {
        match self.chain {
            Chain::Continue { id, .. } if error.is_forgotten(id) => {}
            _ => return None,
        }
        debug!("sending everything once more: the upstream does not know the answer before");
        self.chain = Chain::Start;
        Some(self.translate())
    }

    /// What the upstream keeps of a prompt that it has accepted; nothing where it keeps nothing, or not all that was said.
    pub(crate) fn remembering(&self, prepared: &PreparedRequest) -> Option<UpstreamState> {
        if self.chain == Chain::Standalone || prepared.losses.iter().any(Loss::is_of_input) {
            return None;
        }
        Some(UpstreamState {
            said: ConversationDigest::of(self.history(), self.candidate.model.retention())?,
            upstream: self.candidate.upstream.clone(),
            model: self.candidate.name.clone(),
            id: None,
        })
    }

    /// A shorter prompt after the upstream has said that this one is too long; nothing where it must not or cannot be.
    pub(crate) fn shorter(&mut self, error: &ModelError) -> Option<Result<PreparedRequest, Fault>> {
        if !self.may_shorten() || !error.is_too_long() || self.halvings >= HALVINGS {
            return None;
        }
        let turns = window::turns(self.history());
        if turns < 2 {
            return None;
        }
        self.halvings += 1;
        // The beginning is what goes, and the upstream would have it.
        self.chain = self.chain.anew();
        self.shortened = Some(window::latest(self.call.history, turns / 2)?);
        debug!(turns = turns / 2, "asking again with the latest turns only: the upstream says that it is too much");
        Some(self.translate())
    }

    /// The request as it is sent now.
    pub(crate) fn request(&self) -> ModelRequest<'_> {
        ModelRequest {
            model: &self.candidate.name,
            settings: self.call.request,
            history: self.history(),
            delivery: self.call.delivery,
            chain: self.chain,
            seal_context: self.call.seal_context,
            images: &self.images,
        }
    }

    /// What the history has lost on its way to this candidate belongs to the losses of its prompt.
    pub(crate) fn tell(&self, prepared: &mut PreparedRequest) {
        for loss in self.shortened.iter().flat_map(|history| &history.losses) {
            if !self.call.history.losses.contains(loss) && !prepared.losses.contains(loss) {
                prepared.losses.push(loss.clone());
            }
        }
    }

    fn history(&self) -> &History<'a> {
        self.shortened.as_ref().unwrap_or(self.call.history)
    }

    fn may_shorten(&self) -> bool {
        self.call.request.truncation.as_deref() == Some("auto")
    }

    fn translate(&self) -> Result<PreparedRequest, Fault> {
        let mut prepared = self.candidate.model.prepare(&self.request())?;
        self.tell(&mut prepared);
        Ok(prepared)
    }

    /// As many bytes as the prompt has at least: of what is sent or, where that is a form of its own, of what is said.
    fn bytes(&self, prepared: &PreparedRequest) -> u64 {
        let said =
            self.call.history.instructions.iter().chain(&self.call.history.entries).map(amalgam_core::Entry::len);
        prepared.body.len().max(said.sum()) as u64
    }

    async fn count(&self, prepared: &PreparedRequest) -> Result<TokenCount, Fault> {
        let model = Arc::clone(&self.candidate.model);
        let prepared = prepared.clone();
        counted(move || model.count(&prepared)).await
    }

    /// The weight of every instruction and every entry, in order.
    async fn weigh(&self) -> Result<Vec<u64>, Fault> {
        let (model, name) = (Arc::clone(&self.candidate.model), self.candidate.name.clone());
        let history = self.call.history;
        let spoken: Vec<CountableText> =
            history.instructions.iter().chain(&history.entries).map(CountableText::of).collect();
        counted(move || spoken.iter().map(|spoken| spoken.weight(|text| model.count_text(&name, text))).collect()).await
    }
}

/// How a candidate's call stands to those before it.
fn chain<'a>(call: &ModelCall<'a>, candidate: &Candidate) -> Chain<'a> {
    let retention = candidate.model.retention();
    if !call.kept || retention == UpstreamRetention::Nothing {
        return Chain::Standalone;
    }
    let memory = call.memory.filter(|memory| memory.upstream == candidate.upstream && memory.model == candidate.name);
    let known = memory.and_then(|memory| Some((memory, memory.known(call.history, retention)?)));
    known.map_or(Chain::Start, |(memory, known)| Chain::Continue { id: &memory.id, known })
}

/// Counting a long text takes milliseconds, so it runs on the blocking pool.
pub(crate) async fn counted<T: Send + 'static>(count: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    tokio::task::spawn_blocking(count).await.map_err(Fault::internal)
}
