//! Writes as columns: one array for each column, so that one statement takes many rows.
use amalgam_core::store::ChainPosition;
use amalgam_protocol::{Json, Status};
use amalgam_store::rows::{self, process_bytes};
use tokio_postgres::{Client, Error, Row, Statement};

use crate::{
    connection::Param,
    job::{Job, signed},
};

/// The columns that identify a response.
pub(crate) struct Key<'a> {
    pub(crate) tenant_id: i64,
    pub(crate) user: &'a str,
    pub(crate) stem: &'a str,
    pub(crate) id: &'a str,
}

impl<'a> Key<'a> {
    pub(crate) fn of(job: &'a Job) -> Self {
        let (tenant_id, user) = (job.scope.tenant_id(), job.scope.user());
        Self { tenant_id, user, stem: job.stem.as_str(), id: &job.write.response_id }
    }
}

/// The columns of the end of a response; empty for a running response.
#[derive(Default)]
pub(super) struct EndColumns<'a> {
    pub(super) status: Option<&'static str>,
    pub(super) completed_at: Option<i64>,
    pub(super) error: Option<String>,
    pub(super) incomplete_reason: Option<&'a str>,
    pub(super) usage: Option<String>,
    pub(super) output: Option<&'a str>,
    pub(super) upstream: Option<String>,
    pub(super) provenance: Option<String>,
}

impl<'a> EndColumns<'a> {
    pub(super) fn of(job: &'a Job) -> Self {
        let Some(end) = &job.write.end else { return Self::default() };
        Self {
            status: Some(end.state.status.name()),
            completed_at: end.state.completed_at_ms.map(signed),
            error: end.state.error.as_ref().map(|error| text_of(&error.to_json()).to_owned()),
            incomplete_reason: end.state.incomplete_reason.as_deref(),
            usage: end.state.usage.as_ref().map(|usage| text_of(&rows::usage_json(usage)).to_owned()),
            output: Some(text_of(&end.output)),
            upstream: end.upstream.as_ref().map(|upstream| text_of(&upstream.to_json()).to_owned()),
            provenance: Some(text_of(&end.state.provenance.to_json()).to_owned()),
        }
    }
}

pub(crate) fn text_of(json: &Json) -> &str {
    json.raw().text()
}

/// The four columns of the keys.
pub(crate) struct Keys<'a> {
    pub(crate) tenants: Vec<i64>,
    pub(crate) users: Vec<&'a str>,
    pub(crate) stems: Vec<&'a str>,
    pub(crate) ids: Vec<&'a str>,
}

impl<'a> Keys<'a> {
    pub(crate) fn of(jobs: impl IntoIterator<Item = &'a Job>) -> Self {
        let mut keys = Self { tenants: Vec::new(), users: Vec::new(), stems: Vec::new(), ids: Vec::new() };
        for key in jobs.into_iter().map(Key::of) {
            keys.tenants.push(key.tenant_id);
            keys.users.push(key.user);
            keys.stems.push(key.stem);
            keys.ids.push(key.id);
        }
        keys
    }
}

/// One column of some rows.
pub(crate) fn column<'a, R, T>(rows: &'a [R], cell: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(cell).collect()
}

/// Writes that begin a response.
pub(super) async fn begin(client: &Client, statement: &Statement, jobs: &[&Job]) -> Result<Vec<Row>, Error> {
    let keys = Keys::of(jobs.iter().copied());
    let end = column(jobs, |job| EndColumns::of(job));
    let processes = column(jobs, |job| process_bytes(job.write.process));
    let begun: Vec<_> = jobs.iter().filter_map(|job| job.write.begin.as_deref().map(|begin| (*job, begin))).collect();
    let parents: Vec<Option<&ChainPosition>> = column(&begun, |(_, begin)| begin.parent.as_ref());
    let statuses: Vec<&str> = begun
        .iter()
        .zip(&end)
        .map(|((job, begin), end)| {
            let status = if job.write.started { Status::InProgress } else { begin.status };
            end.status.unwrap_or(status.name())
        })
        .collect();
    // A queued turn has no owner until a process takes or starts it; a turn that has ended has none any more.
    let owners: Vec<Option<&[u8]>> = jobs
        .iter()
        .zip(&processes)
        .map(|(job, process)| (job.write.end.is_none() && !job.is_queued()).then_some(process.as_slice()))
        .collect();
    let params: [Param<'_>; 23] = [
        &keys.tenants,
        &keys.users,
        &keys.stems,
        &keys.ids,
        &column(&parents, |parent| parent.map(|parent| parent.chain.as_str())),
        &column(&parents, |parent| parent.map(|parent| signed(parent.position))),
        &statuses,
        &column(&begun, |(_, begin)| begin.background),
        &column(&begun, |(_, begin)| begin.streamed),
        &column(&begun, |(_, begin)| signed(begin.created_at_ms)),
        &column(&end, |end| end.completed_at),
        &column(&end, |end| end.error.as_deref()),
        &column(&end, |end| end.incomplete_reason),
        &column(&end, |end| end.usage.as_deref()),
        &column(&begun, |(_, begin)| begin.settings.as_ref()),
        &column(&begun, |(_, begin)| begin.conversation.as_deref()),
        &owners,
        &column(&begun, |(job, begin)| begin.request.as_deref().filter(|_| job.write.end.is_none())),
        &column(jobs, |job| job.mark),
        &column(&begun, |(_, begin)| text_of(&begin.input)),
        &column(&end, |end| end.output),
        &column(&end, |end| end.upstream.as_deref()),
        &column(&end, |end| end.provenance.as_deref()),
    ];
    client.query(statement, &params).await
}

/// Writes that only add events.
pub(super) async fn only_events(client: &Client, statement: &Statement, jobs: &[&Job]) -> Result<Vec<Row>, Error> {
    let keys = Keys::of(jobs.iter().copied());
    let processes = column(jobs, |job| process_bytes(job.write.process));
    let chunks: Vec<_> = jobs.iter().filter_map(|job| job.write.events.as_ref()).collect();
    let params: [Param<'_>; 8] = [
        &keys.tenants,
        &keys.users,
        &keys.stems,
        &keys.ids,
        &column(&processes, |process| process.as_slice()),
        &column(&chunks, |chunk| signed(chunk.first)),
        &column(&chunks, |chunk| signed(chunk.last)),
        &column(&chunks, |chunk| chunk.frames.as_ref()),
    ];
    client.query(statement, &params).await
}

/// The model calls of all writes.
pub(super) async fn transcripts(client: &Client, statement: &Statement, jobs: &[Job]) -> Result<Vec<Row>, Error> {
    let calls: Vec<_> = jobs.iter().flat_map(|job| job.write.transcripts.iter().map(move |call| (job, call))).collect();
    let keys = Keys::of(calls.iter().map(|(job, _)| *job));
    let losses = column(&calls, |(_, call)| rows::losses_json(&call.losses));
    let params: [Param<'_>; 21] = [
        &keys.tenants,
        &keys.users,
        &keys.stems,
        &keys.ids,
        &column(&calls, |(job, _)| job.mark),
        &column(&calls, |(_, call)| i64::from(call.number)),
        &column(&calls, |(_, call)| call.upstream.as_str()),
        &column(&calls, |(_, call)| call.model.as_str()),
        &column(&calls, |(_, call)| signed(call.asked_at_ms)),
        &column(&calls, |(_, call)| call.first_token_ms.map(signed)),
        &column(&calls, |(_, call)| signed(call.duration_ms)),
        &column(&calls, |(_, call)| i64::from(call.retries)),
        &column(&calls, |(_, call)| call.request.as_ref()),
        &column(&calls, |(_, call)| call.response.as_ref()),
        &column(&calls, |(_, call)| call.cut),
        &column(&calls, |(_, call)| call.usage.as_ref().map(text_of)),
        &column(&losses, |losses| losses.as_ref().map(text_of)),
        &column(&calls, |(_, call)| call.error.as_deref()),
        &column(&calls, |(_, call)| call.base.as_ref().map(|base| base.response_id.as_str())),
        &column(&calls, |(_, call)| call.base.as_ref().map(|base| i64::from(base.number))),
        &column(&calls, |(_, call)| call.base.as_ref().map(|base| signed(base.shared))),
    ];
    client.query(statement, &params).await
}
