//! The items that turns add to their conversations when they have completed.

use amalgam_protocol::{Json, Status};
use amalgam_store::rows::{self, items_with_ids};
use tokio_postgres::Row;

use crate::job::Job;

/// Items to append to a conversation.
pub(super) struct AppendedItems<'a> {
    pub(super) tenant_id: i64,
    pub(super) user: &'a str,
    pub(super) conversation: String,
    pub(super) ids: Vec<String>,
    pub(super) items: Vec<Json>,
}

impl<'a> AppendedItems<'a> {
    /// The items of a turn; `None` unless it ended `completed` or `incomplete`.
    fn new(job: &'a Job, conversation: &str, input: &Json) -> Option<Self> {
        let end = job.write.end.as_ref()?;
        if !matches!(end.state.status, Status::Completed | Status::Incomplete) {
            return None;
        }
        let added = items_with_ids(input).chain(items_with_ids(&end.output));
        let (ids, items): (Vec<_>, Vec<_>) = added.map(|added| (added.id, added.item)).unzip();
        let (tenant_id, user) = (job.scope.tenant_id(), job.scope.user());
        (!ids.is_empty()).then(|| Self { tenant_id, user, conversation: conversation.to_owned(), ids, items })
    }
}

pub(super) fn appended_at_once<'a>(jobs: &'a [Job]) -> Vec<AppendedItems<'a>> {
    let appended = |job: &'a Job| {
        let begin = job.write.begin.as_ref()?;
        AppendedItems::new(job, begin.conversation.as_deref()?, &begin.input)
    };
    jobs.iter().filter_map(appended).collect()
}

pub(super) fn appended_at_end<'a>(row: &Row, job: &'a Job) -> Option<AppendedItems<'a>> {
    if job.write.begin.is_some() || job.write.end.is_none() {
        return None;
    }
    let conversation: &str = row.try_get(0).ok()?;
    let input: &str = row.try_get(1).ok()?;
    AppendedItems::new(job, conversation, &rows::json(input))
}
