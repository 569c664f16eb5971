//! What the checks begin with: callers, turns, and short ways to write them.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use amalgam_core::{
    Actor, AuditAction, AuditDraft, BANK_LABEL, BoxFuture, Decider, IdKind, Ids, Operator, Policy, Rights, Scope, Stem,
    Store, TenantState,
    store::{
        Approval, BankKind, BankTool, Begin, ChainPosition, Ending, EventChunk, ProcessId, ResponseState, ToolOutcome,
        ToolRun, Transcript, TurnWrite, WriteOutcome,
    },
};
use amalgam_protocol::{Json, Provenance, Status, Usage};
use bytes::Bytes;

/// A store that a check owns.
pub(crate) type Engine = Arc<dyn Store>;

pub(crate) const HERE: ProcessId = ProcessId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
pub(crate) const THERE: ProcessId = ProcessId(u128::MAX - 7);
pub(crate) const NOW: u64 = 1_700_000_000_000;

pub(crate) fn operator() -> Operator {
    Operator::of_this_process()
}

/// A row of the audit for a change that the check is not about.
pub(crate) fn audit() -> AuditDraft {
    Actor::command(Some("test".to_owned())).change(NOW, 1, AuditAction::new("test.change"), "test")
}

pub(crate) fn scope(tenant_id: i64, user: &str) -> Scope {
    Scope::authenticated(tenant_id, user, TenantState::Stored, Rights::USE.and(Rights::ADMIN))
}

/// The caller that most checks are about.
pub(crate) fn anna() -> Scope {
    scope(1, "anna")
}

/// The callers that must not see Anna's objects: another user of her tenant, and a user of her name in another one.
pub(crate) fn strangers() -> [Scope; 2] {
    [scope(1, "bert"), scope(2, "anna")]
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(&Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// A response that has not been written, with the ids of its items.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) id: String,
    pub(crate) input_id: String,
    pub(crate) output_id: String,
    pub(crate) input: Json,
    pub(crate) output: Json,
}

impl Turn {
    pub(crate) fn new(text: &str) -> Self {
        let id = Ids::Unguessable.response(NOW);
        let mut ids = Ids::Within(Stem::of(&id).unwrap());
        let (input_id, output_id) = (ids.make(IdKind::Message), ids.make(IdKind::Message));
        let quoted = serde_json::to_string(text).unwrap();
        let item = |id: &str, role: &str| json(&format!(r#"[{{"id":"{id}","role":"{role}","content":{quoted}}}]"#));
        let (input, output) = (item(&input_id, "user"), item(&output_id, "assistant"));
        Self { id, input_id, output_id, input, output }
    }

    pub(crate) fn begin(&self) -> Begin {
        Begin {
            parent: None,
            status: Status::InProgress,
            created_at_ms: NOW,
            settings: Bytes::from_static(br#""model":"demo","temperature":1.0"#),
            input: self.input.clone(),
            background: false,
            streamed: false,
            conversation: None,
            request: None,
        }
    }

    /// A turn that waits for a process.
    pub(crate) fn queued(&self) -> Begin {
        Begin {
            status: Status::Queued,
            background: true,
            request: Some(Bytes::from_static(br#"{"input":"hi"}"#)),
            ..self.begin()
        }
    }

    pub(crate) fn completed(&self) -> Ending {
        Ending { state: told(Status::Completed), output: self.output.clone(), upstream: None }
    }

    /// A step in which nothing happens.
    pub(crate) fn step(&self) -> TurnWrite {
        TurnWrite {
            response_id: self.id.clone(),
            process: HERE,
            begin: None,
            started: false,
            events: None,
            end: None,
            transcripts: Vec::new(),
            raw_answer: None,
            summary: None,
            tools: Vec::new(),
            approvals: Vec::new(),
            session: None,
            answer: None,
            settlements: Vec::new(),
        }
    }

    pub(crate) fn beginning(&self, begin: Begin) -> TurnWrite {
        TurnWrite { begin: Some(Box::new(begin)), ..self.step() }
    }

    pub(crate) fn ending(&self) -> TurnWrite {
        TurnWrite { end: Some(Box::new(self.completed())), ..self.step() }
    }

    /// Both at once, behind `parent`.
    pub(crate) fn whole(&self, parent: Option<ChainPosition>) -> TurnWrite {
        TurnWrite { end: Some(Box::new(self.completed())), ..self.beginning(Begin { parent, ..self.begin() }) }
    }

    pub(crate) fn starting(&self) -> TurnWrite {
        TurnWrite { started: true, ..self.step() }
    }

    pub(crate) fn saying(&self, first: u64, last: u64, frames: &str) -> TurnWrite {
        let frames = Bytes::copy_from_slice(frames.as_bytes());
        TurnWrite { events: Some(EventChunk { first, last, frames }), ..self.step() }
    }
}

pub(crate) fn told(status: Status) -> ResponseState {
    let ended_well = status == Status::Completed;
    ResponseState {
        status,
        completed_at_ms: ended_well.then_some(NOW + 5),
        error: None,
        incomplete_reason: None,
        usage: ended_well.then(|| Usage {
            input_tokens: 3,
            output_tokens: 4,
            total_tokens: Some(7),
            ..Usage::default()
        }),
        provenance: match ended_well {
            true => Provenance { model: Some("up/m".into()), losses: vec!["top_k: unknown".into()], provider_id: None },
            false => Provenance::default(),
        },
    }
}

pub(crate) fn call(number: u32) -> Transcript {
    Transcript {
        number,
        upstream: "up".into(),
        model: "m".into(),
        asked_at_ms: NOW,
        first_token_ms: Some(12),
        duration_ms: 34,
        retries: 1,
        base: None,
        request: Bytes::from_static(b"{\"a\": 1}"),
        response: Bytes::from_static(b"data: \xff\x00\n\n"),
        cut: true,
        usage: Some(json(r#"{"input_tokens":3}"#)),
        losses: vec!["`top_k` was not carried over".into(), "ü \"q\"".into()],
        error: Some("cut short".into()),
    }
}

/// A tool that is about to run.
pub(crate) fn run(number: u32) -> ToolRun {
    ToolRun {
        number,
        item_id: format!("mcp_{number}"),
        call_id: format!("call_{number}"),
        label: BANK_LABEL.into(),
        name: "book_room".into(),
        arguments: r#"{ "room" : "Köln \ud83e\udd80" }"#.into(),
        idempotent: false,
        started_at_ms: NOW,
        outcome: None,
    }
}

/// The same call, which succeeded.
pub(crate) fn ran(number: u32) -> ToolRun {
    let outcome = ToolOutcome { output: json(r#"{"booked":true}"#), error: None, detail: None, duration_ms: 40 };
    ToolRun { outcome: Some(outcome), ..run(number) }
}

/// A call of a turn of Anna's that waits for her to agree.
pub(crate) fn asked(turn: &Turn, id: &str) -> Approval {
    Approval {
        id: id.into(),
        response_id: turn.id.clone(),
        user: "anna".into(),
        call_id: "call_1".into(),
        label: "calendar".into(),
        name: "delete_event".into(),
        arguments: r#"{"which":"all"}"#.into(),
        decider: Decider::Caller,
        asked_at_ms: NOW,
        expires_at_ms: NOW + 1000,
        decision: None,
        used_by: None,
    }
}

/// A turn of Anna's that has ended with this question.
pub(crate) async fn ask(store: &Engine, approval: Approval) -> Approval {
    let turn = Turn::new("may I?");
    let approval = Approval { response_id: turn.id.clone(), ..approval };
    keep(store, &anna(), TurnWrite { approvals: vec![approval.clone()], ..turn.whole(None) }).await;
    approval
}

/// A tool of a bank.
pub(crate) fn tool(name: &str) -> BankTool {
    BankTool {
        name: name.into(),
        common: false,
        description: "Books a room.".into(),
        parameters: json(r#"{"type":"object"}"#),
        kind: BankKind::Http,
        settings: json(r#"{"url":"https://rooms.example"}"#),
        guidance: None,
        policy: Policy::default(),
        active: true,
        created_at_ms: NOW,
        updated_at_ms: NOW,
    }
}

/// Writes a step that must not be lost.
pub(crate) async fn keep(store: &Engine, scope: &Scope, write: TurnWrite) {
    assert_eq!(store.write(scope, write.into()).await.unwrap(), WriteOutcome::Kept);
}

/// Where a response is.
pub(crate) async fn place(store: &Engine, scope: &Scope, id: &str) -> ChainPosition {
    store.lineage(scope, id).await.unwrap().unwrap().place
}

/// A finished turn behind `parent`.
pub(crate) async fn say(store: &Engine, scope: &Scope, parent: Option<&Turn>, text: &str) -> Turn {
    let parent = match parent {
        Some(turn) => Some(place(store, scope, &turn.id).await),
        None => None,
    };
    let turn = Turn::new(text);
    keep(store, scope, turn.whole(parent)).await;
    turn
}

/// Inputs and outputs of a response's line, oldest first.
pub(crate) async fn line(store: &Engine, scope: &Scope, id: &str) -> Vec<(Json, Json)> {
    let lineage = store.lineage(scope, id).await.unwrap().unwrap();
    lineage.turns.into_iter().map(|turn| (turn.input, turn.output)).collect()
}

/// The same, from the turns themselves.
pub(crate) fn line_of(turns: &[&Turn]) -> Vec<(Json, Json)> {
    turns.iter().map(|turn| (turn.input.clone(), turn.output.clone())).collect()
}

/// Whether a waiting request was notified already.
pub(crate) fn is_called(waiting: &mut BoxFuture<'static, ()>) -> bool {
    waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}
