//! Estimates the usage of an interrupted model call, whose upstream did not report it: counts the prompt and the output
//! so far.

use std::sync::{Arc, OnceLock};

use amalgam_core::{Fault, Model, PreparedRequest};
use amalgam_emitter::PartialAnswer;
use amalgam_protocol::Usage;

use crate::{context_window::run_blocking, run::Run};

/// A body that is counted where it is: handing it to another thread would take longer.
const COUNTED_INLINE: usize = 4096;

/// The request of the current model call, until its upstream reports the usage.
pub(crate) struct SentRequest {
    model: Arc<dyn Model>,
    prepared: PreparedRequest,
}

impl SentRequest {
    pub(crate) fn new(model: &Arc<dyn Model>, mut prepared: PreparedRequest) -> Self {
        // This copy is only counted; it must not record answers.
        prepared.answer_context.recorder = None;
        Self { model: Arc::clone(model), prepared }
    }

    /// The tokens of the prompt by our own count.
    pub(crate) async fn prompt_tokens(&self) -> Result<u64, Fault> {
        let (model, prepared) = (Arc::clone(&self.model), self.prepared.clone());
        let count = move || model.count(&prepared).total();
        match self.prepared.body.len() <= COUNTED_INLINE {
            true => Ok(count()),
            false => run_blocking(count).await,
        }
    }

    fn count(&self, partial: &PartialAnswer) -> Usage {
        let tokens = |text: &str| match text.is_empty() {
            true => 0,
            false => self.model.count_text(&self.prepared.answer_context.model, text),
        };
        let reasoning_tokens = tokens(&partial.reasoning);
        Usage {
            input_tokens: self.model.count(&self.prepared).total(),
            output_tokens: tokens(&partial.words) + reasoning_tokens,
            reasoning_tokens,
            estimated: true,
            ..Usage::default()
        }
    }
}

/// An interrupted call. It is counted on the blocking pool.
pub(crate) struct UncountedCall {
    sent_request: Box<SentRequest>,
    partial: PartialAnswer,
    usage: Arc<OnceLock<Usage>>,
}

impl UncountedCall {
    /// Holds the usage once it is counted.
    pub(crate) fn usage(&self) -> Arc<OnceLock<Usage>> {
        Arc::clone(&self.usage)
    }

    /// Counts the call.
    pub(crate) async fn count(self) -> Option<Usage> {
        let Self { sent_request, partial, usage } = self;
        let counted = run_blocking(move || sent_request.count(&partial)).await.ok()?;
        let _ = usage.set(counted);
        Some(counted)
    }
}

impl Run {
    /// The current call, if it is interrupted before its upstream reports the usage.
    pub(crate) fn uncounted(&mut self) -> Option<UncountedCall> {
        if !self.is_unreported() {
            return None;
        }
        let sent_request = self.sent_request.take().filter(|_| self.emitter.usage_of_call().is_none())?;
        let mut partial = self.emitter.partial_answer();
        if let Some(rounds) = &self.rounds {
            partial.words.push_str(&rounds.held_calls());
        }
        Some(UncountedCall { sent_request, partial, usage: Arc::default() })
    }
}
