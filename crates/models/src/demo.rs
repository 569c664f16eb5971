//! The built-in demo: a model without key and network that always answers the same, and uses every feature.

mod answers;
mod script;

use std::{sync::Arc, time::Duration};

use amalgam_core::{
    AnswerContext, BoxFuture, Delivery, Fault, Losses, Model, ModelError, ModelEvent, ModelRequest, ModelStream,
    PreparedRequest, Seal, TokenCount, Toolset,
};
use futures_util::stream;

use crate::{
    reasoning_seal::{Owner, Sealing, asks_for_sealed},
    settings::{UpstreamKind, UpstreamSettings},
};

use self::script::{Script, pieces};

/// The built-in demo.
pub struct Demo {
    name: String,
    pace: Duration,
    seal: Arc<dyn Seal>,
}

impl Demo {
    /// A demo with the pace of its settings.
    pub fn new(settings: UpstreamSettings, seal: Arc<dyn Seal>) -> Result<Self, Fault> {
        match settings.kind {
            UpstreamKind::Demo { pace } => Ok(Self { name: settings.name, pace, seal }),
            _ => Err(Fault::internal(format_args!("upstream `{}` is not the demo", settings.name))),
        }
    }
}

impl Model for Demo {
    fn provider_name(&self) -> &'static str {
        "amalgam.demo"
    }

    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault> {
        let toolset = Toolset::plain(request.settings, request.history)?;
        let script = answers::script(request, &toolset)?;
        let mut losses = Losses::default();
        losses.extend(toolset.losses.iter().cloned());
        losses.extend(answers::losses(request.settings));
        let owner =
            Owner { upstream: &self.name, model: request.model, context: request.seal_context, seal: &*self.seal };
        losses.extend(answers::unread(request.history, owner));
        Ok(PreparedRequest {
            body: serde_json::to_vec(&script).map_err(Fault::internal)?.into(),
            losses: losses.into_list(),
            delivery: request.delivery,
            calls: toolset.call_map(),
            answer_context: AnswerContext {
                model: request.model.to_owned(),
                seal_context: request.seal_context.to_owned(),
                wants_sealed_reasoning: asks_for_sealed(&request.settings.include),
                ..AnswerContext::default()
            },
        })
    }

    fn sends_addresses(&self) -> bool {
        false
    }

    fn count(&self, prepared: &PreparedRequest) -> TokenCount {
        let script: Script = serde_json::from_slice(&prepared.body).unwrap_or_default();
        TokenCount { text: script.input_tokens, media: 0 }
    }

    fn count_text(&self, _model: &str, text: &str) -> u64 {
        pieces(text).count() as u64
    }

    fn ask<'a>(&'a self, prepared: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let script: Script =
                serde_json::from_slice(&prepared.body).map_err(|error| ModelError::Unreadable(error.to_string()))?;
            let sealing = Sealing::new(&prepared.answer_context, &self.name, Arc::clone(&self.seal));
            let batches = script.batches(&prepared.answer_context.model, &prepared.calls, &sealing);
            Ok(match prepared.delivery {
                Delivery::Whole => Box::pin(stream::iter([Ok(batches.concat())])) as ModelStream,
                Delivery::Stream => paced(batches, self.pace),
            })
        })
    }
}

/// Streams the batches, with a pause before every one that has visible output.
fn paced(batches: Vec<Vec<ModelEvent>>, pace: Duration) -> ModelStream {
    Box::pin(stream::unfold(batches.into_iter(), move |mut rest| async move {
        let batch = rest.next()?;
        let shows = batch.iter().any(|event| {
            matches!(event, ModelEvent::Text { .. } | ModelEvent::ReasoningSummary(_) | ModelEvent::CallDelta { .. })
        });
        if shows && !pace.is_zero() {
            tokio::time::sleep(pace).await;
        }
        Some((Ok(batch), rest))
    }))
}

#[cfg(test)]
#[path = "demo_tests.rs"]
mod tests;
