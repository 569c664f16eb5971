//! Lists of objects, page by page.

use amalgam_core::{
    Fault,
    store::{Order, Page},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::request::wrong;

/// The page size of [`all_pages`].
const PAGE: usize = 200;

/// One page of a list.
#[derive(Serialize, JsonSchema)]
pub struct List<T, Id> {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    /// The entries.
    #[schemars(description = "")]
    pub data: Vec<T>,
    pub(super) first_id: Option<Id>,
    /// `after` of the next page.
    pub last_id: Option<Id>,
    pub(super) has_more: bool,
}

impl<T, Id> List<T, Id> {
    /// A page of `limit` entries. The service reads one entry more, which shows whether there are further pages.
    pub(super) fn new(mut entries: Vec<T>, limit: usize, id: impl Fn(&T) -> Id) -> Self {
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        Self {
            object: "list",
            first_id: entries.first().map(&id),
            last_id: entries.last().map(&id),
            data: entries,
            has_more,
        }
    }
}

impl<T, Id> List<T, Id> {
    /// Whether the list continues after `last_id`.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// A page after which the list continues after `next`, which need not be an entry of the page.
    pub(super) fn until(entries: Vec<T>, next: Option<Id>, id: impl Fn(&T) -> Id) -> Self {
        Self {
            object: "list",
            first_id: entries.first().map(&id),
            has_more: next.is_some(),
            last_id: next.or_else(|| entries.last().map(&id)),
            data: entries,
        }
    }
}

/// Every entry of a list.
pub async fn all_pages<T, Id: ToString>(
    list: impl AsyncFn(Page) -> Result<List<T, Id>, Fault>,
) -> Result<Vec<T>, Fault> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = list(Page { after, limit: PAGE, order: Order::Descending }).await?;
        all.extend(page.data);
        if !page.has_more {
            return Ok(all);
        }
        after = page.last_id.map(|id| id.to_string());
    }
}

/// `after` of a list whose ids are numbers.
pub(super) fn number_after<T: std::str::FromStr>(page: &Page, what: &str) -> Result<Option<T>, Fault> {
    let read = |after: &String| after.parse().map_err(|_| wrong("after", what));
    page.after.as_ref().map(read).transpose()
}
