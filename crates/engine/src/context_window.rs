//! Makes a prompt fit its model: counts it, drops the oldest turns if the caller allows truncation, and refuses a
//! prompt that cannot fit before a model is called.

use std::{collections::HashMap, sync::Arc};

use amalgam_core::{
    Candidate, Chain, ConversationDigest, Fault, History, Loss, ModelError, ModelRequest, PreparedRequest, Scope,
    TokenCount, UpstreamRetention,
    window::{self, CountableText},
};
use tracing::debug;

use crate::{engine::Engine, model_call::ModelCall, upstream_state::UpstreamState};

/// How often the prompt is halved and sent again if an upstream answers only "too long".
const HALVINGS: u32 = 4;

impl Engine {
    /// Counts the tokens of a prompt. Needs an admission slot, because counting takes CPU time.
    pub async fn count(
        &self,
        scope: &Scope,
        candidate: &Candidate,
        prepared: PreparedRequest,
    ) -> Result<TokenCount, Fault> {
        let slot = self.admission.enter(scope.tenant_id(), self.admission.queue_wait()).await?;
        let model = Arc::clone(&candidate.model);
        run_blocking(move || {
            let _slot = slot;
            model.count(&prepared)
        })
        .await
    }

    /// Counts the tokens of each text.
    pub async fn weigh(
        &self,
        scope: &Scope,
        candidate: &Candidate,
        texts: Vec<CountableText>,
    ) -> Result<Vec<u64>, Fault> {
        let slot = self.admission.enter(scope.tenant_id(), self.admission.queue_wait()).await?;
        let (model, name) = (Arc::clone(&candidate.model), candidate.name.clone());
        run_blocking(move || {
            let _slot = slot;
            texts.iter().map(|text| text.weight(|text| model.count_text(&name, text))).collect()
        })
        .await
    }
}

/// The prompt of one candidate.
pub(crate) struct FittedPrompt<'a> {
    call: &'a ModelCall<'a>,
    candidate: &'a Candidate,
    /// Fetched images as `data:` URIs, by address.
    images: HashMap<String, String>,
    /// The shortened history, if turns were dropped.
    shortened: Option<History<'a>>,
    halvings: u32,
    /// How the call relates to responses that the upstream stores.
    chain: Chain<'a>,
}

impl<'a> FittedPrompt<'a> {
    pub(crate) fn new(call: &'a ModelCall<'a>, candidate: &'a Candidate, images: HashMap<String, String>) -> Self {
        Self { call, candidate, images, shortened: None, halvings: 0, chain: chain(call, candidate) }
    }

    /// The translated prompt, shortened to the context window if necessary; a fault if it cannot fit.
    pub(crate) async fn prepare(&mut self) -> Result<PreparedRequest, Fault> {
        let Chain::Continue { .. } = self.chain else { return self.prepare_whole().await };
        if self.candidate.context_window.is_some() {
            // History that the upstream stores counts against the window too.
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
        // A token has at least one byte, so most prompts need no count.
        if self.bytes(&prepared) <= room {
            return Ok(prepared);
        }
        let count = self.count(&prepared).await?;
        if !self.may_shorten() || count.total() <= room {
            window::refuse(count, window, self.may_shorten())?;
            return Ok(prepared);
        }
        let weights = self.weigh().await?;
        // Tools and everything else that cannot be dropped.
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

    /// The whole prompt, after the upstream has answered that it does not have the response that this prompt continues.
    pub(crate) fn without_chain(&mut self, error: &ModelError) -> Option<Result<PreparedRequest, Fault>> {
        match self.chain {
            Chain::Continue { id, .. } if error.is_forgotten(id) => {}
            _ => return None,
        }
        debug!("sending the whole history: the upstream does not know the previous response");
        self.chain = Chain::Start;
        Some(self.translate())
    }

    /// What the upstream stores of an accepted prompt; `None` if it stores nothing, or not the whole input.
    pub(crate) fn upstream_state(&self, prepared: &PreparedRequest) -> Option<UpstreamState> {
        if self.chain == Chain::Standalone || prepared.losses.iter().any(Loss::is_of_input) {
            return None;
        }
        Some(UpstreamState {
            digest: ConversationDigest::of(self.history(), self.candidate.model.retention())?,
            upstream: self.candidate.upstream.clone(),
            model: self.candidate.name.clone(),
            id: None,
        })
    }

    /// A shorter prompt, after the upstream has answered that this one is too long; `None` if the caller does not allow
    /// it or nothing can be dropped.
    pub(crate) fn shortened_after(&mut self, error: &ModelError) -> Option<Result<PreparedRequest, Fault>> {
        if !self.may_shorten() || !error.is_too_long() || self.halvings >= HALVINGS {
            return None;
        }
        let turns = window::turns(self.history());
        if turns < 2 {
            return None;
        }
        self.halvings += 1;
        // The stored history of the upstream would still contain the dropped turns.
        self.chain = self.chain.anew();
        self.shortened = Some(window::latest(self.call.history, turns / 2)?);
        debug!(
            turns = turns / 2,
            "retrying with the latest turns only: the upstream reports that the prompt is too long"
        );
        Some(self.translate())
    }

    /// The request in its present form.
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

    /// Adds the losses of the shortened history to those of the prompt.
    pub(crate) fn add_losses(&self, prepared: &mut PreparedRequest) {
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
        self.add_losses(&mut prepared);
        Ok(prepared)
    }

    /// An upper bound of the prompt's tokens: the bytes of the body, or of the history if that is larger.
    fn bytes(&self, prepared: &PreparedRequest) -> u64 {
        let history =
            self.call.history.instructions.iter().chain(&self.call.history.entries).map(amalgam_core::Entry::len);
        prepared.body.len().max(history.sum()) as u64
    }

    async fn count(&self, prepared: &PreparedRequest) -> Result<TokenCount, Fault> {
        let model = Arc::clone(&self.candidate.model);
        let prepared = prepared.clone();
        run_blocking(move || model.count(&prepared)).await
    }

    /// The tokens of every instruction and every entry, in order.
    async fn weigh(&self) -> Result<Vec<u64>, Fault> {
        let (model, name) = (Arc::clone(&self.candidate.model), self.candidate.name.clone());
        let history = self.call.history;
        let texts: Vec<CountableText> =
            history.instructions.iter().chain(&history.entries).map(CountableText::of).collect();
        run_blocking(move || texts.iter().map(|text| text.weight(|text| model.count_text(&name, text))).collect()).await
    }
}

/// How a candidate's call relates to responses that the upstream stores.
fn chain<'a>(call: &ModelCall<'a>, candidate: &Candidate) -> Chain<'a> {
    let retention = candidate.model.retention();
    if !call.stored || retention == UpstreamRetention::Nothing {
        return Chain::Standalone;
    }
    let memory = call.memory.filter(|memory| memory.upstream == candidate.upstream && memory.model == candidate.name);
    let known = memory.and_then(|memory| Some((memory, memory.known(call.history, retention)?)));
    known.map_or(Chain::Start, |(memory, known)| Chain::Continue { id: &memory.id, known })
}

/// Runs work of milliseconds, such as counting a long text, on the blocking pool.
pub(crate) async fn run_blocking<T: Send + 'static>(count: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    tokio::task::spawn_blocking(count).await.map_err(Fault::internal)
}
