//! The caller's own stored responses, newest first.

use amalgam_core::{
    Fault, Scope, Stem,
    store::{Page, TurnCursor, TurnFilter, TurnPage, TurnsOf},
};

use crate::{app::Application, ids::no_such_cursor};

/// A page of the caller's stored responses, without their content.
pub async fn stored_responses(app: &Application, scope: &Scope, page: &Page) -> Result<TurnPage, Fault> {
    let after = page.after.as_deref().map(cursor).transpose()?;
    let filter = TurnFilter { stored: Some(true), ..TurnFilter::default() };
    Ok(app.store.turns(TurnsOf::Caller(scope), filter, after, page.limit).await?)
}

/// The position after a response. The time of a response is a part of its id.
pub fn cursor(after: &str) -> Result<TurnCursor, Fault> {
    let time = Stem::of(after).and_then(|_| after.split('-').nth(1)?.parse().ok());
    let created_at_ms = time.ok_or_else(|| no_such_cursor("after", after))?;
    Ok(TurnCursor { created_at_ms, response_id: after.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_continues_behind_the_id_of_a_response() {
        let id = "resp_AM-1794849695256-mwjj60bc9oloqhwh9dalnt1d";
        let expected = TurnCursor { created_at_ms: 1_794_849_695_256, response_id: id.to_owned() };
        assert_eq!(cursor(id).unwrap(), expected);
        for wrong in ["resp_1", "conv_AM-mwjj60bc9oloqhwh9dalnt1d", "a-1-b"] {
            assert!(cursor(wrong).is_err(), "{wrong}");
        }
    }
}
