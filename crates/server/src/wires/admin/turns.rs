//! `/admin/turns`: the turns of a tenant, as a list, as a live list, and one with the exact text of every call.

use std::{collections::HashMap, sync::Arc, time::Duration};

use amalgam_administration::{
    Administration,
    turn_list::{TurnQuery, TurnRow},
    turns::EVENT_PAGE,
};
use amalgam_core::{
    Actor, Fault, Scope,
    store::{CallBodies, Order, Page},
};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use tokio::time::{Instant, sleep, sleep_until};

use super::call::{Answer, Call, shown};
use crate::app::App;

/// The default and the maximum size of a page.
const PAGE: (usize, u64) = (50, 200);

/// How often the live list looks for changes.
const TAIL_INTERVAL: Duration = Duration::from_secs(1);

/// How often the live list sends an event while nothing changes, so that proxies keep the connection.
const TAIL_KEEPALIVE: Duration = Duration::from_secs(15);

/// The newest turns that the live list compares with what it has sent.
const TAIL_WINDOW: usize = 200;

/// The live list ends after this time, so that revoked keys stop reading; clients connect again.
const TAIL_LIFETIME: Duration = Duration::from_secs(15 * 60);

pub(super) async fn list(call: Call) -> Answer {
    let (query, page) = (query(&call)?, call.query.page_of(PAGE.0, PAGE.1)?);
    let running = call.app.engine.running_turns();
    shown(&call.administration().turns(&call.scope, &query, &page, running).await?)
}

pub(super) async fn retrieve(call: Call) -> Answer {
    let scope = call.tenant().await?;
    let bodies = match call.query.get("bodies").is_none() || call.query.flag("bodies")? {
        true => CallBodies::All,
        false => CallBodies::None,
    };
    shown(&call.administration().turn(&scope, call.id(), bodies).await?)
}

/// One model call with its exact request and answer.
pub(super) async fn retrieve_call(call: Call) -> Answer {
    let scope = call.tenant().await?;
    shown(&call.administration().turn_call(&scope, call.id(), call.path.text(1)).await?)
}

/// What the prompt of a model call consists of.
pub(super) async fn context(call: Call) -> Answer {
    let scope = call.tenant().await?;
    let number = call.query.number("call")?.map_or(Ok(0), u32::try_from);
    let number = number.map_err(|_| Fault::invalid("call", "Invalid value for 'call': no turn has so many calls."))?;
    shown(&call.administration().turn_context(&scope, call.id(), number).await?)
}

/// The stored events, page by page.
pub(super) async fn events(call: Call) -> Answer {
    let scope = call.tenant().await?;
    let limit = call.query.page_of(EVENT_PAGE.0, EVENT_PAGE.1)?.limit;
    shown(&call.administration().turn_events(&scope, call.id(), call.query.number("after")?, limit).await?)
}

/// The last 24 hours.
pub(super) async fn overview(call: Call) -> Answer {
    let scope = call.tenant().await?;
    let running = call.app.engine.running_turns();
    shown(&amalgam_administration::overview::overview(&call.app, call.actor(), &scope, running).await?)
}

/// Streams turns as they begin and end. The first events are the turns of the last minute.
pub(super) async fn tail(call: Call) -> Answer {
    let mut query = query(&call)?;
    if query.filter.from_ms.is_none() {
        query.filter.from_ms = Some(call.app.clock.now_ms().saturating_sub(60_000));
    }
    let now = Instant::now();
    let actor = call.actor();
    let mut tail =
        Tail { app: call.app, scope: call.scope, actor, query, sent: HashMap::new(), ends: now + TAIL_LIFETIME };
    // The first look answers errors as usual.
    let first = tail.changes().await?;
    let events = stream::unfold((tail, Some(first)), |(mut tail, first)| async move {
        let frames = match first {
            Some(rows) if !rows.is_empty() => frames(&rows),
            _ => tail.next().await?,
        };
        Some((Ok::<_, std::convert::Infallible>(frames), (tail, None)))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// `tenant_id` is accepted for `tenant`, as in the rest of the administration.
fn query(call: &Call) -> Result<TurnQuery, Fault> {
    TurnQuery::read(|name| match name {
        "tenant" => call.query.get("tenant").or_else(|| call.query.get("tenant_id")),
        name => call.query.get(name),
    })
}

/// A live list.
struct Tail {
    app: Arc<App>,
    scope: Scope,
    actor: Actor,
    query: TurnQuery,
    /// The status that was sent of each turn in the window.
    sent: HashMap<String, String>,
    ends: Instant,
}

impl Tail {
    /// The turns that are new or have another status than what was sent, oldest first.
    async fn changes(&mut self) -> Result<Vec<TurnRow>, Fault> {
        let page = Page { after: None, limit: TAIL_WINDOW, order: Order::Descending };
        let running = self.app.engine.running_turns();
        let list =
            Administration::new(&self.app, self.actor.clone()).turns(&self.scope, &self.query, &page, running).await?;
        let mut window = HashMap::with_capacity(list.data.len());
        let mut changed = Vec::new();
        for row in list.data {
            if self.sent.get(&row.id) != Some(&row.status) {
                changed.push(row.clone());
            }
            window.insert(row.id, row.status);
        }
        self.sent = window;
        changed.reverse();
        Ok(changed)
    }

    /// Waits for changes; a keepalive if there are none for a while, none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let quiet_until = Instant::now() + TAIL_KEEPALIVE;
        loop {
            if Instant::now() >= self.ends || !self.app.is_ready() {
                return None;
            }
            tokio::select! {
                () = sleep(TAIL_INTERVAL) => {}
                () = sleep_until(quiet_until) => return Some(Bytes::from_static(b"event: keepalive\ndata: {}\n\n")),
            }
            match self.changes().await {
                Ok(rows) if rows.is_empty() => {}
                Ok(rows) => return Some(frames(&rows)),
                // The store may be back in a moment.
                Err(_) => {}
            }
        }
    }
}

fn frames(rows: &[TurnRow]) -> Bytes {
    let mut frames = Vec::new();
    for row in rows {
        frames.extend_from_slice(b"event: turn\ndata: ");
        frames.extend(serde_json::to_vec(row).expect("a row is a plain struct"));
        frames.extend_from_slice(b"\n\n");
    }
    frames.into()
}
