//! Memory of a fresh server: idle, and with many streams open that say something now and then.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Route, Stage, Subject, probe, progress};
use crate::client::{Connection, Job};
use crate::process::resident_bytes;
use crate::requests::Scenario;
use crate::sse::SseCount;

pub(super) const IDLE_TARGET_MIB: f64 = 20.0;
pub(super) const STREAM_TARGET_KIB: f64 = 32.0;

/// How many streams are being opened at any time; the rest waits, as a crowd of clients would in the accept queue.
const OPENING: usize = 50;

pub(super) struct MemoryRow {
    pub(super) label: &'static str,
    pub(super) idle_mib: f64,
    pub(super) streams: usize,
    pub(super) loaded_mib: f64,
    pub(super) kib_per_stream: f64,
    /// A pass-through is there to compare with and has no target.
    pub(super) judged: bool,
}

impl MemoryRow {
    pub(super) fn missed(&self) -> impl Iterator<Item = String> {
        let idle = (self.judged && self.idle_mib > IDLE_TARGET_MIB)
            .then(|| format!("{} idle {:.1} MiB > {IDLE_TARGET_MIB} MiB", self.label, self.idle_mib));
        let stream = (self.judged && self.kib_per_stream > STREAM_TARGET_KIB)
            .then(|| format!("{} {:.1} KiB a stream > {STREAM_TARGET_KIB} KiB", self.label, self.kib_per_stream));
        idle.into_iter().chain(stream)
    }
}

/// A new process for every row, so that none starts with what another left behind.
pub(super) async fn measure(stage: &Stage<'_>, started_at: Instant) -> anyhow::Result<Vec<MemoryRow>> {
    let mut rows = Vec::new();
    let ways = if stage.options.subject == Subject::Amalgam { 3 } else { 2 };
    for way in 0..ways {
        let raw = stage.start_raw().await?;
        let subject = stage.start_subject().await?;
        let routes = stage.routes(&raw, &subject);
        let judged = way > 0 && stage.options.subject == Subject::Amalgam;
        let route = routes.get(way).context("no such route")?;
        let row = row(route, stage.options.plan.open_streams, judged).await;
        let row = row.with_context(|| format!("{}: open streams", route.label))?;
        progress(
            started_at,
            &format!("memory, {}: idle {:.1} MiB, {:.1} KiB a stream", row.label, row.idle_mib, row.kib_per_stream),
        );
        rows.push(row);
    }
    Ok(rows)
}

async fn row(route: &Route, streams: usize, judged: bool) -> anyhow::Result<MemoryRow> {
    // Start-up work has to be over; there is no event for that.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let idle = resident_bytes(route.pid)?;
    probe::check(route, Scenario::Burst).await?;

    let open = OpenStreams::open(&route.job(Scenario::Slow), streams).await?;
    let loaded = resident_bytes(route.pid)?;
    open.leave().await?;
    Ok(MemoryRow {
        label: route.label,
        idle_mib: idle as f64 / f64::from(1 << 20),
        streams,
        loaded_mib: loaded as f64 / f64::from(1 << 20),
        kib_per_stream: loaded.saturating_sub(idle) as f64 / 1024.0 / streams as f64,
        judged,
    })
}

/// Streams that are read and not finished.
struct OpenStreams {
    readers: JoinSet<anyhow::Result<()>>,
    leave: watch::Sender<bool>,
}

impl OpenStreams {
    /// Returns when every stream has delivered a token.
    async fn open(job: &Job, streams: usize) -> anyhow::Result<Self> {
        let (leave, leaving) = watch::channel(false);
        let mut readers = JoinSet::new();
        let mut left = streams;
        while left > 0 {
            let mut opening = JoinSet::new();
            for _ in 0..left.min(OPENING) {
                let job = job.clone();
                opening.spawn(async move { first_token(&job).await });
            }
            left = left.saturating_sub(OPENING);
            for opened in opening.join_all().await {
                let (connection, body) = opened?;
                readers.spawn(read_until(connection, body, leaving.clone()));
            }
        }
        Ok(Self { readers, leave })
    }

    /// Closes all of them; fails when one had already ended by itself.
    async fn leave(self) -> anyhow::Result<()> {
        self.leave.send_replace(true);
        self.readers.join_all().await.into_iter().collect()
    }
}

async fn first_token(job: &Job) -> anyhow::Result<(Connection, Incoming)> {
    let mut connection = Connection::open(job).await?;
    let mut body = connection.send(job).await?.into_body();
    let mut count = SseCount::default();
    while count.deltas == 0 {
        let frame = body.frame().await.context("the stream ended before its first token")?;
        if let Ok(data) = frame.context("the stream broke off")?.into_data() {
            count.feed(&data);
        }
    }
    Ok((connection, body))
}

async fn read_until(_open: Connection, mut body: Incoming, mut leaving: watch::Receiver<bool>) -> anyhow::Result<()> {
    let reading = async { while let Some(Ok(_)) = body.frame().await {} };
    tokio::select! {
        biased;
        _ = leaving.wait_for(|leave| *leave) => Ok(()),
        () = reading => bail!("a stream ended while memory was measured"),
    }
}
