//! `GET /v1/responses/{id}/input_items`: the input of the model, in pages.
//!
//! That is the whole context of the response: the items of the responses that it continues, then its own input.

use std::collections::HashSet;

use amalgam_core::{
    Fault,
    store::{Lineage, Order, Page},
};
use amalgam_protocol::Raw;
use axum::response::Response;

use super::retrieve::RESPONSE;
use crate::wires::call::Call;
use crate::wires::{
    WireError, answer,
    query::{missing, no_such_cursor},
};

/// One page of the items.
pub(super) async fn list(Call { app, scope, path, query, .. }: Call) -> Result<Response, WireError> {
    let id = path.id(RESPONSE)?;
    let results = query.include()?;
    let page = query.page()?;
    let lineage = app.store.lineage(&scope, &id).await?;
    let lineage = lineage.ok_or_else(|| missing(RESPONSE, &id))?;
    let window = window(model_input(&lineage), &page, query.get("before"))?;
    Ok(answer::list(&window.items, window.has_more, results))
}

/// The input of the model, oldest first. An id is listed once, at its first position, so that a cursor is unambiguous.
fn model_input(lineage: &Lineage) -> Vec<Raw<'_>> {
    let Some((own, earlier)) = lineage.turns.split_last() else { return Vec::new() };
    let lists = earlier.iter().flat_map(|turn| [&turn.input, &turn.output]).chain([&own.input]);
    let mut seen = HashSet::new();
    lists.flat_map(|list| list.raw().elements()).filter(|item| seen.insert(item.get_str("id"))).collect()
}

/// The requested part of a list.
#[derive(Debug, PartialEq)]
struct Window<'a> {
    items: Vec<Raw<'a>>,
    has_more: bool,
}

/// Selects a page from items in ascending order. With `after` the page follows it; with only `before` the page precedes
/// it.
fn window<'a>(mut items: Vec<Raw<'a>>, page: &Page, before: Option<&str>) -> Result<Window<'a>, Fault> {
    if page.order == Order::Descending {
        items.reverse();
    }
    let index_of = |name: &'static str, id: &str| {
        let found = items.iter().position(|item| item.get_str("id").as_deref() == Some(id));
        found.ok_or_else(|| no_such_cursor(name, id))
    };
    let start = page.after.as_deref().map(|id| index_of("after", id)).transpose()?.map_or(0, |index| index + 1);
    let end = before.map(|id| index_of("before", id)).transpose()?.unwrap_or(items.len());
    let between = items.get(start..end).unwrap_or_default();
    let has_more = between.len() > page.limit;
    let cut = match (page.after.is_none(), before.is_some()) {
        (true, true) => between.get(between.len().saturating_sub(page.limit)..),
        _ => between.get(..page.limit.min(between.len())),
    };
    Ok(Window { items: cut.unwrap_or_default().to_vec(), has_more })
}

#[cfg(test)]
mod tests {
    use amalgam_core::store::{ChainPosition, ItemsOf};
    use amalgam_protocol::{Json, Status};
    use bytes::Bytes;

    use super::*;

    fn array(ids: &[&str]) -> Json {
        let items: Vec<String> = ids.iter().map(|id| format!(r#"{{"id":"{id}"}}"#)).collect();
        Json::parse(&Bytes::from(format!("[{}]", items.join(",")))).unwrap()
    }

    fn ids(items: &[Raw<'_>]) -> String {
        items.iter().map(|item| item.get_str("id").unwrap().into_owned()).collect::<Vec<_>>().join("")
    }

    fn cut(order: Order, limit: usize, after: Option<&str>, before: Option<&str>) -> Result<(String, bool), Fault> {
        let list = array(&["a", "b", "c", "d", "e"]);
        let page = Page { after: after.map(str::to_owned), limit, order };
        window(list.raw().elements().collect(), &page, before).map(|window| (ids(&window.items), window.has_more))
    }

    #[test]
    fn a_response_was_given_what_it_continues_and_its_own_input() {
        let turn = |input: &[&str], output: &[&str]| ItemsOf { input: array(input), output: array(output) };
        let lineage = Lineage {
            status: Status::Completed,
            place: ChainPosition { chain: "resp_1".to_owned(), position: 1 },
            upstream: None,
            // The second turn sends an item of the first one again.
            turns: vec![turn(&["a"], &["b", "c"]), turn(&["d", "b"], &["e"]), turn(&["f"], &["g"])],
        };
        assert_eq!(ids(&model_input(&lineage)), "abcdef");
    }

    #[test]
    fn pages_follow_each_other_in_either_order() {
        use Order::{Ascending, Descending};
        let page = |text: &str, more| (text.to_owned(), more);
        assert_eq!(cut(Ascending, 2, None, None).unwrap(), page("ab", true));
        assert_eq!(cut(Ascending, 2, Some("b"), None).unwrap(), page("cd", true));
        assert_eq!(cut(Ascending, 2, Some("d"), None).unwrap(), page("e", false));
        assert_eq!(cut(Ascending, 2, Some("e"), None).unwrap(), page("", false));
        assert_eq!(cut(Ascending, 5, None, None).unwrap(), page("abcde", false));
        assert_eq!(cut(Descending, 2, None, None).unwrap(), page("ed", true));
        assert_eq!(cut(Descending, 3, Some("d"), None).unwrap(), page("cba", false));
    }

    #[test]
    fn a_list_is_read_back_from_before() {
        use Order::{Ascending, Descending};
        let page = |text: &str, more| (text.to_owned(), more);
        assert_eq!(cut(Ascending, 2, None, Some("d")).unwrap(), page("bc", true));
        assert_eq!(cut(Ascending, 2, None, Some("b")).unwrap(), page("a", false));
        assert_eq!(cut(Descending, 2, None, Some("b")).unwrap(), page("dc", true));
        assert_eq!(cut(Ascending, 1, Some("a"), Some("d")).unwrap(), page("b", true));
        assert_eq!(cut(Ascending, 9, Some("d"), Some("b")).unwrap(), page("", false));
    }

    #[test]
    fn an_item_that_is_not_in_the_list_begins_no_page() {
        for (after, before, param) in [(Some("x"), None, "after"), (None, Some("x"), "before")] {
            let fault = cut(Order::Ascending, 2, after, before).unwrap_err();
            assert_eq!(fault.param.as_deref(), Some(param));
        }
    }
}
