//! How values are stored in columns.
//!
//! Statuses, rights and states are stored under their names and objects as the JSON text that a caller would see, so that a
//! database can be read without this program.

use std::borrow::Cow;

use amalgam_core::{
    RawAnswer, Rights, Scope, StoreError, TenantState, UpstreamMemory,
    store::{Base, NewItem, ProcessId, ResponseState, Transcript},
};
use amalgam_protocol::{ErrorObject, Json, Provenance, Raw, Status, Usage, Writer};
use bytes::Bytes;

use crate::values::SqlRow;

/// An array without elements.
pub const NO_ITEMS: &str = "[]";

/// An id that every other one sorts before.
pub(crate) const BEHIND_ALL: &str = "\u{10ffff}";

/// JSON that this program has written: it was checked before it was stored, and is not checked again.
pub fn json(text: &str) -> Json {
    let mut writer = Writer::with_capacity(text.len());
    writer.valid(text.as_bytes());
    Json::from_writer(writer)
}

/// The status of a row.
pub fn status(name: &str) -> Result<Status, StoreError> {
    Status::named(name).ok_or_else(|| unknown("status", name))
}

/// The state of a response, from its columns.
pub fn response_state(
    status: Status,
    completed_at_ms: Option<u64>,
    error: Option<&str>,
    incomplete_reason: Option<&str>,
    usage: Option<&str>,
    provenance: Option<&str>,
) -> ResponseState {
    ResponseState {
        status,
        completed_at_ms,
        error: error.map(|text| ErrorObject::read(json(text).raw())),
        incomplete_reason: incomplete_reason.map(str::to_owned),
        usage: usage.map(|text| Usage::read_stored(json(text).raw())),
        provenance: provenance.map(|text| Provenance::read(json(text).raw())).unwrap_or_default(),
    }
}

/// Usage as it is stored.
pub fn usage_json(usage: &Usage) -> Json {
    let mut writer = Writer::with_capacity(192);
    usage.write(&mut writer);
    Json::from_writer(writer)
}

/// The upstream's last answer, from its column.
pub fn raw_answer(text: &str) -> RawAnswer {
    RawAnswer::read(json(text).raw())
}

/// What an upstream that stores state has stored up to a response. `None` if the text cannot be parsed.
pub fn upstream(text: &str) -> Option<UpstreamMemory> {
    UpstreamMemory::read(json(text).raw())
}

/// A digest from its column.
pub(crate) fn digest(column: &[u8]) -> Result<[u8; 32], StoreError> {
    column.try_into().map_err(|_| StoreError::Broken("a stored digest has another length".to_owned()))
}

/// A tenant's state.
pub(crate) fn tenant_state(name: &str) -> Result<TenantState, StoreError> {
    TenantState::named(name).ok_or_else(|| unknown("state of a tenant", name))
}

/// Rights as names with spaces between them.
pub(crate) fn rights_text(rights: Rights) -> String {
    rights.names().collect::<Vec<_>>().join(" ")
}

/// Rights from their names. A name that this version does not have is an error, so that a key never loses rights
/// silently.
pub(crate) fn rights(text: &str) -> Result<Rights, StoreError> {
    text.split_whitespace().try_fold(Rights::NONE, |all, name| {
        Rights::named(name).map(|right| all.and(right)).ok_or_else(|| unknown("right of a key", name))
    })
}

/// Losses as an array of strings; nothing for none.
pub fn losses_json(losses: &[String]) -> Option<Json> {
    (!losses.is_empty()).then(|| strings_json(losses))
}

/// Strings as an array.
pub fn strings_json(strings: &[String]) -> Json {
    let mut writer = Writer::default();
    writer.array(|writer| strings.iter().for_each(|string| writer.string(string)));
    Json::from_writer(writer)
}

/// Strings from their array.
pub(crate) fn strings(text: &str) -> Vec<String> {
    json(text).raw().elements().filter_map(|string| Some(string.as_str()?.decode().into_owned())).collect()
}

/// A text that every engine can store: PostgreSQL cannot store U+0000 in text.
pub fn storable(text: &str) -> Cow<'_, str> {
    match text.contains('\0') {
        true => Cow::Owned(text.replace('\0', "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

/// The id of a process as its column has it.
pub fn process_bytes(process: ProcessId) -> [u8; 16] {
    process.0.to_be_bytes()
}

/// The id of a process from its column.
pub fn process_id(column: &[u8]) -> Result<ProcessId, StoreError> {
    let bytes =
        column.try_into().map_err(|_| StoreError::Broken("the id of a process has another length".to_owned()))?;
    Ok(ProcessId(u128::from_be_bytes(bytes)))
}

/// The owner of a row, with the fewest rights, for work without a caller. A tenant without a state has the default one.
#[expect(clippy::disallowed_methods, reason = "the owner of a row was authenticated when it was written")]
pub fn owner(tenant_id: i64, user: &str, state: Option<&str>) -> Result<Scope, StoreError> {
    let state = state.map(tenant_state).transpose()?.unwrap_or_default();
    Ok(Scope::authenticated(tenant_id, user, state, Rights::USE))
}

/// A model call from the columns number, upstream, model, asked_at, first_token_ms, duration_ms, retries, request, response,
/// cut, usage, losses, error, base_response, base_number, base_shared.
pub fn transcript(row: &dyn SqlRow) -> Result<Transcript, StoreError> {
    Ok(Transcript {
        number: row.get(0)?,
        upstream: row.get(1)?,
        model: row.get(2)?,
        asked_at_ms: row.get(3)?,
        first_token_ms: row.optional(4)?,
        duration_ms: row.get(5)?,
        retries: row.get(6)?,
        base: base(row, 13)?,
        request: row.get(7)?,
        response: row.get(8)?,
        cut: row.get(9)?,
        usage: row.optional(10)?,
        losses: row.optional(11)?.map(strings).unwrap_or_default(),
        error: row.optional(12)?,
    })
}

/// The earlier call that a request continues, from three columns: response, number and shared bytes.
pub fn base(row: &dyn SqlRow, column: usize) -> Result<Option<Base>, StoreError> {
    let Some(response_id) = row.optional(column)? else { return Ok(None) };
    Ok(Some(Base { response_id, number: row.get(column + 1)?, shared: row.get(column + 2)? }))
}

/// The element of a JSON array that has this id.
pub fn item_in(array: &str, id: &str) -> Option<Json> {
    // Most of the arrays do not contain the id, and a text search is far cheaper than parsing objects. Ids of this
    // program need no escapes.
    if !array.contains(id) {
        return None;
    }
    let array = json(array);
    let has_id = |item: &Raw<'_>| item.get("id").and_then(Raw::as_str).is_some_and(|text| text.is(id));
    array.raw().elements().find(has_id).map(|item| Json::within(array.bytes(), item))
}

/// The elements of a JSON array that have an id, with their ids.
pub fn items_with_ids(array: &Json) -> impl Iterator<Item = NewItem> {
    array.raw().elements().filter_map(|item| {
        let id = item.get_str("id").filter(|id| !id.is_empty())?.into_owned();
        Some(NewItem { id, item: Json::within(array.bytes(), item) })
    })
}

/// Assembles a call's request from its stored parts: the newest part first, each after the prefix that it shares with
/// the call before.
pub struct RequestParts {
    parts: Vec<(Bytes, Option<Base>)>,
    /// Whether the last base does not exist.
    missing: bool,
}

impl RequestParts {
    /// Starts with a stored call, and removes its base.
    pub fn of(call: &mut Transcript) -> Self {
        Self { parts: vec![(call.request.clone(), call.base.take())], missing: false }
    }

    /// The call whose part is needed next.
    pub fn next(&self) -> Option<Base> {
        self.parts.last().and_then(|(_, base)| base.clone()).filter(|_| !self.missing)
    }

    /// Adds the stored part of that call; `None` if the call does not exist.
    pub fn push(&mut self, part: Option<(Bytes, Option<Base>)>) {
        match part {
            Some(part) => self.parts.push(part),
            None => self.missing = true,
        }
    }

    /// Returns the whole body. If a call that others refer to is missing, returns only what follows the missing bytes;
    /// the base then names the missing call and the number of bytes.
    pub fn whole(mut self) -> (Bytes, Option<Base>) {
        let Some((first, mut missing)) = self.parts.pop() else { return (Bytes::new(), None) };
        if self.parts.is_empty() {
            return (first, missing);
        }
        let mut body = first.to_vec();
        for (part, base) in self.parts.into_iter().rev() {
            let shared = base.map_or(0, |base| base.shared);
            if let Some(missing) = &mut missing {
                missing.shared = missing.shared.min(shared);
            }
            let known = shared - missing.as_ref().map_or(0, |missing| missing.shared);
            body.truncate(usize::try_from(known).unwrap_or(usize::MAX));
            body.extend_from_slice(&part);
        }
        (body.into(), missing.filter(|missing| missing.shared > 0))
    }
}

/// The error for a name in a column that this version does not have.
pub(crate) fn unknown(what: &str, name: &str) -> StoreError {
    StoreError::Broken(format!("`{name}` is no {what}"))
}

#[cfg(test)]
mod tests {
    use amalgam_protocol::ReportedUsage;

    use super::*;

    #[test]
    fn what_goes_into_columns_comes_out_again() {
        let usage = Usage {
            input_tokens: 7,
            cached_tokens: 3,
            cache_write_tokens: 1,
            output_tokens: 5,
            reasoning_tokens: 2,
            total_tokens: Some(12),
            estimated: true,
            reported: Some(ReportedUsage { input_tokens: 7, output_tokens: 2, total_tokens: 9 }),
        };
        let error = ErrorObject {
            message: "no \"answer\" from 模型".into(),
            kind: "server_error".into(),
            param: None,
            code: Some("upstream".into()),
        };
        let provenance = Provenance {
            model: Some("up/模型".into()),
            losses: vec!["tools[0]: \"x\" is unknown".into()],
            provider_id: Some("chatcmpl-\"1\"".into()),
        };
        assert_eq!(
            response_state(
                Status::Failed,
                Some(9),
                Some(error.to_json().raw().text()),
                Some("max_output_tokens"),
                Some(usage_json(&usage).raw().text()),
                Some(provenance.to_json().raw().text())
            ),
            ResponseState {
                status: Status::Failed,
                completed_at_ms: Some(9),
                error: Some(error),
                incomplete_reason: Some("max_output_tokens".into()),
                usage: Some(usage),
                provenance
            }
        );
        let all = Rights::USE.and(Rights::ADMIN).and(Rights::OPERATOR);
        for kept in [Rights::NONE, Rights::USE, all] {
            assert_eq!(rights(&rights_text(kept)).unwrap(), kept);
        }
        assert!(rights("use fly").is_err());
        let said = vec!["`top_k`".to_owned(), "\"quoted\"\n".to_owned()];
        assert_eq!(losses_json(&said).map(|json| strings(json.raw().text())), Some(said));
        assert_eq!(losses_json(&[]), None);
    }

    #[test]
    fn an_item_is_found_by_its_own_id_and_by_no_other_field() {
        let array = r#"[{"type":"message","call_id":"msg_2"},{"id":"msg_2","text":"é"},{"nested":{"id":"msg_3"}}]"#;
        assert_eq!(item_in(array, "msg_2"), Some(json(r#"{"id":"msg_2","text":"é"}"#)));
        assert_eq!(item_in(array, "msg_3"), None);
        assert_eq!(item_in(NO_ITEMS, "msg_2"), None);
        let ids: Vec<String> = items_with_ids(&json(array)).map(|item| item.id).collect();
        assert_eq!(ids, ["msg_2"]);
    }
}
