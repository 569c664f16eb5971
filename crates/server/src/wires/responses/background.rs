//! Background turns, when their time has come.

use std::sync::{Arc, Weak};

use amalgam_core::{BoxFuture, Fault, FaultKind, Scope, store::QueuedTurn};
use amalgam_engine::{Identity, Runner, look};
use tracing::warn;

use super::turn::{Begun, Order, begin, waited};
use crate::app::App;

/// Runs the turns that this door has put in the queue.
#[derive(Clone)]
pub struct QueueRunner(Weak<App>);

impl QueueRunner {
    /// A runner over the server's parts.
    pub fn new(app: &Arc<App>) -> Self {
        Self(Arc::downgrade(app))
    }
}

impl Runner for QueueRunner {
    fn run(&self, turn: QueuedTurn) -> BoxFuture<'static, ()> {
        let app = self.0.clone();
        Box::pin(async move {
            if let Some(app) = app.upgrade() {
                run(&app, turn).await;
            }
        })
    }
}

async fn run(app: &App, turn: QueuedTurn) {
    let QueuedTurn { scope, response_id, created_at_ms, request, streamed } = turn;
    let told = match told(app, &scope, &response_id, streamed).await {
        Ok(told) => told,
        Err(fault) => {
            warn!(
                response.id = response_id,
                detail = fault.detail,
                "a background turn could not be looked up: {fault}"
            );
            return app.engine.hand_over(&response_id).await;
        }
    };
    let identity = Identity { response_id: response_id.clone(), created_at_ms };
    let mut order = Order { waited: Some(told), ..Order::new(identity) };
    let begun = match waited(app, &scope, request) {
        Ok(request) => begin(app, &scope, &request, &mut order).await,
        Err(fault) => Err(fault),
    };
    match begun {
        Ok(Begun::Running(running)) => app.engine.run_in_background(running.run).await,
        Ok(Begun::Queued { .. }) => warn!(response.id = response_id, "a turn that waited was put back into the queue"),
        // It has not begun, and can wait for somebody who has room, and a store.
        Err(fault)
            if matches!(
                fault.kind,
                FaultKind::Overloaded | FaultKind::OutOfMemory | FaultKind::ShuttingDown | FaultKind::StoreDown
            ) =>
        {
            app.engine.hand_over(&response_id).await;
        }
        Err(fault) => {
            // Where the model refused, the turn's end is written already, and this changes nothing.
            if let Err(error) = app.engine.give_up(&scope, &response_id, fault.response_error()).await {
                warn!(response.id = response_id, "a background turn could not be ended: {error}");
            }
        }
    }
}

/// How many events were told of a turn so far: by whoever took it in, and by whoever began with it and did not go on.
async fn told(app: &App, scope: &Scope, response_id: &str, streamed: bool) -> Result<u64, Fault> {
    if !streamed {
        return Ok(0);
    }
    let tail = look(&*app.store, scope, response_id, Some(i64::MAX.unsigned_abs())).await?;
    Ok(tail.and_then(|tail| tail.last).map_or(0, |last| last + 1))
}
