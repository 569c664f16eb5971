//! What a call of a model has cost that is given up before its upstream says so: our own count of the prompt that was sent and
//! of what the model had said.

use std::sync::{Arc, OnceLock};

use amalgam_core::{Model, PartialAnswer, PreparedRequest};
use amalgam_protocol::Usage;

use crate::{context_window::counted, run::Run};

/// The call that a model answers, kept until its upstream says what it cost.
pub(crate) struct AskedModel {
    model: Arc<dyn Model>,
    prepared: PreparedRequest,
}

impl AskedModel {
    pub(crate) fn new(model: &Arc<dyn Model>, mut prepared: PreparedRequest) -> Self {
        // What the upstream says is not read through this copy.
        prepared.answer_context.recorder = None;
        Self { model: Arc::clone(model), prepared }
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

/// A call that was given up, to be counted off the threads that serve connections.
pub(crate) struct UncountedCall {
    asked: Box<AskedModel>,
    partial: PartialAnswer,
    usage: Arc<OnceLock<Usage>>,
}

impl UncountedCall {
    /// Holds the usage once it is counted.
    pub(crate) fn usage(&self) -> Arc<OnceLock<Usage>> {
        Arc::clone(&self.usage)
    }

    /// Counts it, on top of what the calls before it have cost.
    pub(crate) async fn add_to(self, earlier: Option<Usage>) -> Option<Usage> {
        let Self { asked, partial, usage } = self;
        match counted(move || asked.count(&partial)).await {
            Ok(counted) => {
                let _ = usage.set(counted);
                Some(earlier.map_or(counted, |earlier| earlier.plus(counted)))
            }
            Err(_) => earlier,
        }
    }
}

impl Run {
    /// The model's call that is given up here, if its upstream has not said what it cost.
    pub(crate) fn uncounted(&mut self) -> Option<UncountedCall> {
        self.recorder.as_ref().filter(|recorder| !recorder.is_over())?;
        let asked = self.asked.take().filter(|_| self.emitter.usage_of_call().is_none())?;
        let mut partial = self.emitter.partial_answer();
        if let Some(rounds) = &self.rounds {
            partial.words.push_str(&rounds.held_calls());
        }
        Some(UncountedCall { asked, partial, usage: Arc::default() })
    }
}
