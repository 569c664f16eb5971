//! The caller's own stored completions: responses that were created through the Chat Completions API.

use amalgam_chat_completions::{CompletionSettings, response_id};
use amalgam_core::{
    Fault, Scope, Wire,
    store::{ListedTurn, Page, TurnFilter, TurnsOf},
};
use amalgam_protocol::Raw;

use crate::{
    app::Application,
    ids::{no_such_cursor, not_found},
    turns,
};

/// The resource name in errors about missing completions.
pub const COMPLETION: &str = "Chat completion";

/// How many turns are read at once, and how often, for one page of a list with a filter by metadata.
const TURNS_AT_ONCE: usize = 100;
const READS_FOR_A_PAGE: usize = 10;

/// Which completions are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionFilter {
    /// The model, as it was requested or as the upstream knows it.
    pub model: Option<String>,
    /// Pairs that the metadata has.
    pub metadata: Vec<(String, String)>,
}

/// A page of stored completions, the newest first, without their content.
#[derive(Debug, Default)]
pub struct CompletionPage {
    /// The completions.
    pub completions: Vec<ListedCompletion>,
    /// The id of the response behind which the list continues.
    pub last_id: Option<String>,
    /// Whether it continues.
    pub has_more: bool,
}

/// An entry of a list.
#[derive(Debug)]
pub struct ListedCompletion {
    /// The turn.
    pub turn: ListedTurn,
    /// What it repeats of its request.
    pub settings: CompletionSettings,
}

/// A page of the caller's stored completions.
pub async fn stored_completions(
    app: &Application,
    scope: &Scope,
    page: &Page,
    filter: CompletionFilter,
) -> Result<CompletionPage, Fault> {
    let behind = |id: &str| {
        let response_id = response_id(id).ok_or_else(|| no_such_cursor("after", id))?;
        turns::cursor(&response_id).map_err(|_| no_such_cursor("after", id))
    };
    let mut after = page.after.as_deref().map(behind).transpose()?;
    let turn_filter = TurnFilter {
        stored: Some(true),
        wire: Some(Wire::ChatCompletions),
        model: filter.model,
        ..TurnFilter::default()
    };
    let at_once = if filter.metadata.is_empty() { page.limit } else { TURNS_AT_ONCE };
    let mut found = CompletionPage::default();
    for _ in 0..READS_FOR_A_PAGE {
        let listed = app.store.turns(TurnsOf::Caller(scope), turn_filter.clone(), after, at_once).await?;
        let ids = listed.turns.iter().map(|turn| turn.response_id.clone()).collect();
        let settings = app.store.response_settings(scope, ids).await?;
        let mut turns = listed.turns.into_iter().zip(settings);
        for (turn, settings) in turns.by_ref() {
            found.last_id = Some(turn.response_id.clone());
            // A deleted response has no settings any more.
            let Some(settings) = settings.map(|settings| CompletionSettings::read(&settings)) else { continue };
            if settings.has_metadata(&filter.metadata) {
                found.completions.push(ListedCompletion { turn, settings });
            }
            if found.completions.len() == page.limit {
                break;
            }
        }
        let is_full = found.completions.len() == page.limit;
        found.has_more = listed.next.is_some() || turns.next().is_some();
        match listed.next {
            Some(next) if !is_full => {
                found.last_id = Some(next.response_id.clone());
                after = Some(next);
            }
            _ => break,
        }
    }
    Ok(found)
}

/// Replaces the metadata of a stored completion.
pub async fn replace_metadata(
    app: &Application,
    scope: &Scope,
    response_id: &str,
    metadata: Raw<'_>,
) -> Result<(), Fault> {
    let missing = || not_found(COMPLETION, &amalgam_chat_completions::completion_id(response_id));
    let settings = app.store.response_settings(scope, vec![response_id.to_owned()]).await?;
    let settings = settings.into_iter().flatten().next().ok_or_else(missing)?;
    let changed = CompletionSettings::read(&settings).with_metadata(metadata);
    match app.store.replace_response_settings(scope, response_id, changed.into()).await? {
        true => Ok(()),
        false => Err(missing()),
    }
}
