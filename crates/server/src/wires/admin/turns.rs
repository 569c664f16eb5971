//! `GET /admin/turns/{response_id}`: a turn of the own tenant, with the exact text of every call of a model or a tool.

use std::sync::Arc;

use amalgam_core::{
    Fault, FaultKind, Scope,
    store::{ToolRun, Transcript, TurnRecord, Within},
};
use amalgam_protocol::Writer;
use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};

use super::write_text;
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{id_of, missing},
    },
};

/// What a missing turn is called.
const TURN: &str = "Turn";

/// The turn that made a response, by our id of the response or by the one that the model's server gave its last answer, then
/// the newest of them; whichever user of the tenant it belongs to.
pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let id = id_of(TURN, id)?;
    let Some(admin) = scope.admin() else {
        return Err(Fault::new(FaultKind::Forbidden, "Only an administrator of the tenant may see its turns.").into());
    };
    if let Some(turn) = app.store.turn(admin, &id).await.map_err(Fault::from)? {
        return Ok(told(&turn));
    }
    // The assistant's door tells the id of the model's server as `response_id`, and that server's own log has no other.
    let own = app.store.response_of_answer_within(Within::Own(admin), &id).await.map_err(Fault::from)?;
    let own = own.ok_or_else(|| missing(TURN, &id))?;
    let turn = app.store.turn(admin, &own).await.map_err(Fault::from)?.ok_or_else(|| missing(TURN, &id))?;
    Ok(told(&turn))
}

fn told(turn: &TurnRecord) -> Response {
    let bodies: usize = turn.transcripts.iter().map(|call| call.request.len() + call.response.len()).sum();
    let mut writer = Writer::with_capacity(bodies + bodies / 4 + 4096);
    writer.object(|writer| {
        writer.key("id").string(&turn.response.id);
        writer.key("object").string("turn");
        writer.key("user").string(&turn.user);
        turn.response.write(writer.key("response"));
        writer.key("calls").array(|writer| turn.transcripts.iter().for_each(|call| write(writer, call)));
        writer.key("tool_calls").array(|writer| turn.tools.iter().for_each(|run| write_run(writer, run)));
    });
    answer::json(writer.into_bytes())
}

fn write(writer: &mut Writer, call: &Transcript) {
    writer.object(|writer| {
        writer.key("number").number(u64::from(call.number));
        writer.key("upstream").string(&call.upstream);
        writer.key("model").string(&call.model);
        writer.key("asked_at_ms").number(call.asked_at_ms);
        match call.first_token_ms {
            Some(milliseconds) => writer.key("first_token_ms").number(milliseconds),
            None => writer.key("first_token_ms").null(),
        }
        writer.key("duration_ms").number(call.duration_ms);
        writer.key("retries").number(u64::from(call.retries));
        // As text, whatever it is: exactly what was sent and what came, also where that is no JSON.
        writer.key("request").string(&String::from_utf8_lossy(&call.request));
        writer.key("request_incomplete").bool(call.base.is_some());
        writer.key("response").string(&String::from_utf8_lossy(&call.response));
        writer.key("response_cut").bool(call.cut);
        match &call.usage {
            Some(usage) => writer.key("usage").raw(usage.raw()),
            None => writer.key("usage").null(),
        }
        writer.key("losses").array(|writer| call.losses.iter().for_each(|loss| writer.string(loss)));
        write_text(writer, "error", call.error.as_deref());
    });
}

/// A call of a tool. While nobody can say how it ended, it is told as unknown.
fn write_run(writer: &mut Writer, run: &ToolRun) {
    writer.object(|writer| {
        writer.key("number").number(u64::from(run.number));
        writer.key("item_id").string(&run.item_id);
        writer.key("call_id").string(&run.call_id);
        writer.key("label").string(&run.label);
        writer.key("name").string(&run.name);
        writer.key("arguments").string(&run.arguments);
        writer.key("idempotent").bool(run.idempotent);
        writer.key("started_at").number(run.started_at_ms / 1000);
        writer.key("unknown").bool(run.outcome.is_none());
        match &run.outcome {
            Some(outcome) => {
                writer.key("duration_ms").number(outcome.duration_ms);
                writer.key("output").raw(outcome.output.raw());
            }
            None => {
                writer.key("duration_ms").null();
                writer.key("output").null();
            }
        }
        let outcome = run.outcome.as_ref();
        write_text(writer, "error", outcome.and_then(|outcome| outcome.error.as_deref()));
        write_text(writer, "detail", outcome.and_then(|outcome| outcome.detail.as_deref()));
    });
}
