//! What answers a turn that only makes ready for the next one: nobody, at once.
//!
//! Such a turn goes the way of all others, so that it is checked, kept and told as they are. Only the model is missing.

use std::sync::Arc;

use amalgam_core::{
    BoxFuture, CallMap, Candidate, Fault, Finish, Model, ModelError, ModelEvent, ModelRequest, ModelStream, Note,
    Prepared, Route,
};
use amalgam_protocol::{Slices, Usage};
use futures_util::stream;

/// In the place of the models of `route`.
pub(super) fn candidates(route: &Route) -> Vec<Candidate> {
    let named = route.candidates.first();
    vec![Candidate {
        upstream: named.map(|first| first.upstream.clone()).unwrap_or_default(),
        model: Arc::new(Silent),
        name: named.map(|first| first.name.clone()).unwrap_or_default(),
        context_window: None,
    }]
}

struct Silent;

impl Model for Silent {
    /// Nothing is sent, so that nothing is lost and the body is empty.
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<Prepared, Fault> {
        Ok(Prepared {
            body: Slices::default(),
            losses: Vec::new(),
            delivery: request.delivery,
            calls: CallMap::default(),
            note: Note::default(),
        })
    }

    fn ask<'a>(&'a self, _: &'a Prepared) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        let events = vec![ModelEvent::Usage(Usage::default()), ModelEvent::Finish(Finish::Stop)];
        Box::pin(async move { Ok(Box::pin(stream::iter([Ok(events)])) as ModelStream) })
    }
}
