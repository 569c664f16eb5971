//! A store in memory for one turn: it keeps what real ones promise to keep, and fails at the worst moments.

use std::{collections::BTreeMap, sync::Arc};

use amalgam_core::{
    Admin, BoxFuture, Operator, Scope, Store, StoreError, no_items,
    store::{
        Answer, Approval, Begin, CancelOutcome, ChainPosition, Claim, EventTail, IdempotencyKey, Lineage, ProcessId,
        ProcessStore, PruneCounts, QueuedTurn, RecoveryCounts, Reset, ResponseState, ResponseStore, Retention, Stored,
        StoredResponse, ToolRun, TurnRecord, TurnStore, TurnWrite, WriteOutcome,
    },
};
use amalgam_protocol::{ErrorObject, Json, Provenance, Status};
use rand::RngExt;

use super::world::{State, World};

/// The process whose turn it is.
pub(super) const PROCESS: ProcessId = ProcessId(1);

/// Failures in a row that every caller must survive.
const MOST_TROUBLES: u32 = 2;

/// What is on disk.
#[derive(Default)]
pub(super) struct Shelf {
    /// Whether the turn is stored at all, and whether the store fails now and then.
    pub(super) kept: bool,
    pub(super) troubled: bool,
    pub(super) turn: Option<KeptTurn>,
    /// Approvals that other responses have acted on, and those that this one has.
    pub(super) taken: Vec<String>,
    pub(super) used: Vec<String>,
}

/// The stored turn.
#[derive(Debug, Clone)]
pub(super) struct KeptTurn {
    id: String,
    begin: Begin,
    owner: Option<ProcessId>,
    pub(super) state: ResponseState,
    pub(super) output: Json,
    pub(super) tools: BTreeMap<u32, ToolRun>,
    pub(super) approvals: Vec<Approval>,
    next_event: u64,
}

impl Shelf {
    /// Whether it is written that a call is about to run. A call that was agreed to is known by its own id.
    pub(super) fn is_intended(&self, key: &str, call_id: &str) -> bool {
        let mut tools = self.turn.iter().flat_map(|turn| turn.tools.values());
        tools.any(|run| {
            run.outcome.is_none() && (run.item_id == key || key.starts_with("mcpr") && run.call_id == call_id)
        })
    }

    fn commit(&mut self, write: TurnWrite) -> Result<WriteOutcome, String> {
        match (&self.turn, write.begin) {
            (None, None) | (Some(_), Some(_)) => return Ok(WriteOutcome::Lost),
            (Some(turn), None) if turn.owner != Some(write.process) => return Ok(WriteOutcome::Lost),
            (Some(_), None) => {}
            (None, Some(begin)) => self.turn = Some(KeptTurn::new(write.response_id, write.process, *begin)),
        }
        let Some(turn) = &mut self.turn else { return Ok(WriteOutcome::Lost) };
        if let Some(chunk) = write.events {
            // A write whose answer got lost comes again.
            if chunk.first != turn.next_event && chunk.last + 1 != turn.next_event {
                return Err(format!("events from {} on behind {}", chunk.first, turn.next_event));
            }
            turn.next_event = chunk.last + 1;
        }
        for run in write.tools {
            let before = turn.tools.insert(run.number, run.clone());
            match before {
                Some(before) if before.item_id != run.item_id => return Err(format!("call {} is two", run.number)),
                Some(before) if before.outcome.is_some() && before != run => {
                    return Err(format!("call {} ended twice", run.number));
                }
                _ => {}
            }
        }
        turn.approvals.extend(write.approvals);
        if let Some(end) = write.end {
            (turn.state, turn.output, turn.owner) = (end.state, end.output, None);
        }
        Ok(WriteOutcome::Kept)
    }

    /// Ends what a dead process has left.
    fn end_dead_process(&mut self, process: ProcessId, error: fn(&[String]) -> String) -> RecoveryCounts {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.owner == Some(process)) else {
            return RecoveryCounts::default();
        };
        let error: serde_json::Value = serde_json::from_str(&error(&turn.unknown())).unwrap();
        let text = |key: &str| error[key].as_str().map(ToOwned::to_owned);
        turn.owner = None;
        turn.state.status = Status::Failed;
        turn.state.error = Some(ErrorObject {
            message: text("message").unwrap(),
            kind: text("type").unwrap(),
            param: text("param"),
            code: text("code"),
        });
        RecoveryCounts { failed: 1, queued: 0 }
    }
}

impl KeptTurn {
    fn new(id: String, process: ProcessId, begin: Begin) -> Self {
        let state = ResponseState {
            status: begin.status,
            completed_at_ms: None,
            error: None,
            incomplete_reason: None,
            usage: None,
            provenance: Provenance::default(),
        };
        let (owner, output) = (Some(process), no_items());
        Self { id, begin, owner, state, output, tools: BTreeMap::new(), approvals: Vec::new(), next_event: 0 }
    }

    /// Tools that had begun, must not run again, and have an unknown result.
    pub(super) fn unknown(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for run in self.tools.values().filter(|run| run.outcome.is_none() && !run.idempotent) {
            if !names.contains(&run.name) {
                names.push(run.name.clone());
            }
        }
        names
    }

    pub(super) fn response(&self) -> StoredResponse {
        StoredResponse {
            id: self.id.clone(),
            status: self.state.clone(),
            created_at_ms: self.begin.created_at_ms,
            settings: self.begin.settings.clone(),
            input: self.begin.input.clone(),
            output: self.output.clone(),
            background: false,
            streamed: self.begin.streamed,
            conversation: None,
            place: ChainPosition { chain: self.id.clone(), position: 0 },
        }
    }
}

/// The store of a world.
pub(super) struct SimStore(pub(super) Arc<World>);

#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    None,
    /// Nothing is written.
    Before,
    /// Written, but the caller gets an error.
    After,
}

impl State {
    fn trouble(&mut self) -> Trouble {
        if !self.shelf.troubled || self.troubles >= MOST_TROUBLES || !self.chance.random_bool(0.15) {
            self.troubles = 0;
            return Trouble::None;
        }
        self.troubles += 1;
        if self.chance.random_bool(0.5) { Trouble::Before } else { Trouble::After }
    }

    fn commit(&mut self, write: TurnWrite) -> WriteOutcome {
        match self.shelf.commit(write) {
            Ok(written) => written,
            Err(problem) => {
                self.complain(format!("the store was told of {problem}"));
                WriteOutcome::Kept
            }
        }
    }
}

/// A write in progress. It completes even if no caller waits for it, unless its process is dead.
struct OnItsWay<'a>(&'a World, Option<TurnWrite>);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if let Some(write) = self.1.take().filter(|_| !state.dead) {
            state.commit(write);
        }
    }
}

impl TurnStore for SimStore {
    fn add_summaries(&self, _: Vec<amalgam_core::TurnSummary>) -> Stored<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn add_unfinished<'a>(&'a self, _: &'a Scope, _: Arc<TurnWrite>) -> Stored<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn write<'a>(&'a self, _: &'a Scope, write: Arc<TurnWrite>) -> Stored<'a, WriteOutcome> {
        let write = Arc::unwrap_or_clone(write);
        Box::pin(async move {
            let what = describe(&write);
            self.0.step(format!("store: {what}")).await;
            let trouble = self.0.state().trouble();
            let mut on_its_way = OnItsWay(&self.0, (trouble != Trouble::Before).then_some(write));
            self.0.pause(20).await;
            let Some(write) = on_its_way.1.take() else { return Err(away()) };
            let written = self.0.state().commit(write);
            self.0.step(format!("store: {what} was {written:?}")).await;
            match trouble {
                Trouble::After => Err(away()),
                _ => Ok(written),
            }
        })
    }

    fn claim<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a IdempotencyKey,
        _: [u8; 32],
        _: &'a str,
        _: ProcessId,
        _: u64,
    ) -> Stored<'a, Claim> {
        not_simulated()
    }

    fn settle<'a>(&'a self, _: &'a Scope, _: &'a IdempotencyKey, _: &'a str, _: Option<Answer>) -> Stored<'a, ()> {
        not_simulated()
    }

    fn turn<'a>(&'a self, _: Admin<'a>, _: &'a str) -> Stored<'a, Option<TurnRecord>> {
        not_simulated()
    }
}

impl SimStore {
    /// Acts on an approval.
    pub(super) async fn use_up(&self, id: &str) -> Result<bool, StoreError> {
        self.0.step(format!("store: {id} is acted on")).await;
        let trouble = self.0.state().trouble();
        self.0.pause(20).await;
        if trouble == Trouble::Before {
            return Err(away());
        }
        let free = {
            let shelf = &mut self.0.state().shelf;
            shelf.used.push(id.to_owned());
            !shelf.taken.iter().any(|taken| taken == id)
        };
        self.0.step(format!("store: {id} was acted on: {free}")).await;
        match trouble {
            Trouble::After => Err(away()),
            _ => Ok(free),
        }
    }
}

fn describe(write: &TurnWrite) -> String {
    let mut parts = Vec::new();
    if write.begin.is_some() {
        parts.push("the beginning".to_owned());
    }
    if let Some(chunk) = &write.events {
        parts.push(format!("events {} to {}", chunk.first, chunk.last));
    }
    for run in &write.tools {
        let how = match &run.outcome {
            None => "is about to run".to_owned(),
            Some(outcome) => format!("ended {}", outcome.error.as_deref().unwrap_or("well")),
        };
        parts.push(format!("call {} of {} {how}", run.number, run.name));
    }
    if let Some(end) = &write.end {
        parts.push(format!("the end, {}", end.state.status.name()));
    }
    parts.join(", ")
}

fn away() -> StoreError {
    StoreError::Unavailable("it is away for a moment".to_owned())
}

pub(super) fn not_simulated<'a, T>() -> Stored<'a, T> {
    Box::pin(async { Err(StoreError::Broken("not part of this test".to_owned())) })
}

impl ProcessStore for SimStore {
    fn beat(&self, _: Operator, _: ProcessId, _: u64) -> Stored<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn processes(&self, _: Operator) -> Stored<'_, Vec<(ProcessId, u64)>> {
        Box::pin(async { Ok(vec![(PROCESS, 0)]) })
    }

    fn end_dead_process<'a>(
        &'a self,
        _: Operator,
        process: ProcessId,
        _: u64,
        error: fn(&[String]) -> String,
        _: u64,
    ) -> Stored<'a, Option<RecoveryCounts>> {
        Box::pin(async move { Ok(Some(self.0.state().shelf.end_dead_process(process, error))) })
    }

    fn take_queued(&self, _: Operator, _: ProcessId, _: usize) -> Stored<'_, Vec<QueuedTurn>> {
        not_simulated()
    }

    fn count_queued(&self, _: Operator, _: i64) -> Stored<'_, (u64, u64)> {
        not_simulated()
    }

    fn give_back<'a>(&'a self, _: Operator, _: ProcessId, _: &'a [String]) -> Stored<'a, ()> {
        not_simulated()
    }

    fn held(&self, _: Operator, _: ProcessId) -> Stored<'_, Vec<(String, Scope)>> {
        not_simulated()
    }

    fn claims(&self, _: Operator, _: ProcessId) -> Stored<'_, Vec<String>> {
        not_simulated()
    }

    fn release<'a>(&'a self, _: Operator, _: ProcessId, _: &'a [String]) -> Stored<'a, ()> {
        not_simulated()
    }

    fn prune(&self, _: Operator, _: Retention) -> Stored<'_, PruneCounts> {
        not_simulated()
    }

    fn reset(&self, _: Operator, _: Reset) -> Stored<'_, ()> {
        not_simulated()
    }
}

impl ResponseStore for SimStore {
    fn response<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<StoredResponse>> {
        Box::pin(async {
            self.0.step("store: the response is read".to_owned()).await;
            Ok(self.0.state().shelf.turn.as_ref().map(KeptTurn::response))
        })
    }

    fn lineage<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Lineage>> {
        not_simulated()
    }

    fn raw_answer<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<amalgam_core::RawAnswer>> {
        not_simulated()
    }

    fn items<'a>(&'a self, _: &'a Scope, _: &'a [String]) -> Stored<'a, Vec<Option<Json>>> {
        not_simulated()
    }

    fn delete_response<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, bool> {
        not_simulated()
    }

    fn cancel_response<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<CancelOutcome>> {
        not_simulated()
    }

    fn end_response<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<StoredResponse>> {
        not_simulated()
    }

    fn events<'a>(&'a self, _: &'a Scope, _: &'a str, _: Option<u64>, _: usize) -> Stored<'a, Option<EventTail>> {
        not_simulated()
    }
}

impl Store for SimStore {
    fn changed(&self, _: &str) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn ping(&self) -> Stored<'_, ()> {
        not_simulated()
    }

    fn size(&self, _: Operator) -> Stored<'_, u64> {
        not_simulated()
    }
}
