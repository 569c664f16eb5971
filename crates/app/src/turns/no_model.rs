//! A model stub for a turn that only prepares the next one (`generate: false`). It finishes at once, without output.
//!
//! Such a turn takes the normal path, so that it is checked, stored and answered like any other.

use std::sync::Arc;

use amalgam_core::{
    AnswerContext, BoxFuture, CallMap, Candidate, Fault, Finish, Model, ModelError, ModelEvent, ModelRequest,
    ModelStream, PreparedRequest, Route,
};
use amalgam_protocol::Usage;
use bytes::Bytes;
use futures_util::stream;

/// The stub in place of the models of `route`.
pub(super) fn candidates(route: &Route) -> Vec<Candidate> {
    let named = route.candidates.first();
    vec![Candidate {
        upstream: named.map(|first| first.upstream.clone()).unwrap_or_default(),
        model: Arc::new(NoModel),
        name: named.map(|first| first.name.clone()).unwrap_or_default(),
        alias: named.and_then(|first| first.alias.clone()),
        context_window: None,
        price: named.and_then(|first| first.price),
    }]
}

struct NoModel;

impl Model for NoModel {
    /// Nothing is sent, so nothing is lost and the body is empty.
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault> {
        Ok(PreparedRequest {
            body: Bytes::new(),
            losses: Vec::new(),
            delivery: request.delivery,
            calls: CallMap::default(),
            answer_context: AnswerContext::default(),
        })
    }

    fn ask<'a>(&'a self, _: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        let events = vec![ModelEvent::Usage(Usage::default()), ModelEvent::Finish(Finish::Stop)];
        Box::pin(async move { Ok(Box::pin(stream::iter([Ok(events)])) as ModelStream) })
    }
}
