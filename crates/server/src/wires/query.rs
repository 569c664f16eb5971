//! Query strings, and ids in paths.

use std::{convert::Infallible, fmt::Display};

use amalgam_core::{
    Fault,
    file_search::{FILE_SEARCH_RESULTS, Results},
    store::{Order, Page},
};
use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderValue, header, request::Parts};
use percent_encoding::percent_decode_str;

pub(crate) use amalgam_app::{is_id, no_such_cursor, not_found as missing};

/// The default page size.
const DEFAULT_LIMIT: usize = 20;
/// The maximum page size.
const MAX_LIMIT: u64 = 100;

/// The supported values of `include`. Except for search results, everything that is stored is always sent.
const INCLUDABLE: [&str; 8] = [
    FILE_SEARCH_RESULTS,
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
];

/// The pairs of a query string, decoded. Unknown names are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::read(parts.uri.query().unwrap_or_default()))
    }
}

impl Query {
    fn read(text: &str) -> Self {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        };
        Self(text.split('&').filter(|text| !text.is_empty()).map(pair).collect())
    }

    /// The value of a parameter; none if it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The pairs of a parameter that is an object: `name[key]=value`.
    pub(crate) fn pairs(&self, name: &str) -> Vec<(String, String)> {
        let inside = |key: &str| Some(key.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?.to_owned());
        self.0.iter().filter_map(|(key, value)| Some((inside(key)?, value.clone()))).collect()
    }

    /// Whether a parameter is `true`.
    pub(crate) fn flag(&self, name: &'static str) -> Result<bool, Fault> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(invalid(name, "must be `true` or `false`")),
        }
    }

    /// The value of a parameter as a whole number.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<u64>, Fault> {
        let read = |text: &str| text.parse().map_err(|_| invalid(name, "must be a whole number of at least 0"));
        self.get(name).map(read).transpose()
    }

    /// Checks the values of `include`, given once or several times, with or without brackets. Returns whether search
    /// results are included.
    pub(crate) fn include(&self) -> Result<Results, Fault> {
        let includes = self.0.iter().filter(|(name, _)| name.split('[').next() == Some("include"));
        let mut results = Results::Hidden;
        for (_, value) in includes.filter(|(_, value)| !value.is_empty()) {
            if !INCLUDABLE.contains(&value.as_str()) {
                let supported = INCLUDABLE.join("`, `");
                return Err(invalid(
                    "include",
                    format_args!("must be one of `{supported}`, but is `{}`", shown(value)),
                ));
            }
            if value == FILE_SEARCH_RESULTS {
                results = Results::Shown;
            }
        }
        Ok(results)
    }

    /// `limit`, `order` and `after`; the newest items come first by default.
    pub(crate) fn page(&self) -> Result<Page, Fault> {
        self.page_of(DEFAULT_LIMIT, MAX_LIMIT)
    }

    /// The same for a list with other page sizes.
    pub(crate) fn page_of(&self, default_limit: usize, max_limit: u64) -> Result<Page, Fault> {
        let limit = match self.number("limit")? {
            None => default_limit,
            Some(limit) if (1..=max_limit).contains(&limit) => limit as usize,
            Some(_) => return Err(invalid("limit", format_args!("must be between 1 and {max_limit}"))),
        };
        let order = match self.get("order") {
            None | Some("desc") => Order::Descending,
            Some("asc") => Order::Ascending,
            Some(_) => return Err(invalid("order", "must be `asc` or `desc`")),
        };
        let after = match self.get("after") {
            Some(after) if !is_id(after) => return Err(no_such_cursor("after", after)),
            after => after.map(str::to_owned),
        };
        Ok(Page { after, limit, order })
    }
}

/// The content type of streams.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// Whether a caller accepts this content type.
pub(crate) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let names = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains(kind));
    headers.get_all(header::ACCEPT).iter().any(names)
}

/// The number of the last event that a caller has received, if it sent one.
pub(crate) fn last_event(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

fn invalid(name: &'static str, why: impl Display) -> Fault {
    Fault::invalid(name, format!("Invalid value for '{name}': {why}."))
}

/// A value, shortened for an error message.
fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use amalgam_core::FaultKind;

    use super::*;

    fn fault_of<T: std::fmt::Debug>(result: Result<T, Fault>) -> (Option<String>, FaultKind) {
        let fault = result.unwrap_err().into_parts();
        (fault.param.map(std::borrow::Cow::into_owned), fault.kind)
    }

    #[test]
    fn pairs_are_decoded_and_empty_values_are_not_said() {
        let query = Query::read("a=1&b=&c&d=x%20y+z%C3%A9&a=2&%65=f&bad=%FF%0&&");
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!((query.get("b"), query.get("c"), query.get("unknown")), (None, None, None));
        assert_eq!((query.get("d"), query.get("e")), (Some("x y zé"), Some("f")));
        assert_eq!(query.get("bad"), Some("\u{fffd}%0"));
    }

    #[test]
    fn a_page_has_usual_values_and_bounds() {
        let default_page = Page { after: None, limit: 20, order: Order::Descending };
        assert_eq!(Query::read("").page().unwrap(), default_page);
        assert_eq!(Query::read("limit=&order=&after=&other=7").page().unwrap(), default_page);
        let page = Page { after: Some("msg_1".to_owned()), limit: 100, order: Order::Ascending };
        assert_eq!(Query::read("limit=100&order=asc&after=msg_1").page().unwrap(), page);
        for (text, param) in [
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("limit=-1", "limit"),
            ("limit=ten", "limit"),
            ("limit=99999999999999999999", "limit"),
            ("order=up", "order"),
            ("after=%00", "after"),
        ] {
            assert_eq!(fault_of(Query::read(text).page()), (Some(param.to_owned()), FaultKind::Invalid), "{text}");
        }
    }

    #[test]
    fn include_is_known_however_it_is_written() {
        for good in [
            "",
            "include=",
            "include=reasoning.encrypted_content",
            "include[]=reasoning.encrypted_content&include[]=message.output_text.logprobs",
            "include%5B0%5D=file_search_call.results",
            "included=nonsense",
        ] {
            assert!(Query::read(good).include().is_ok(), "{good}");
        }
        for bad in ["include=nonsense", "include[]=file_search_call.results&include[]=x", "include%5B0%5D=x"] {
            assert_eq!(fault_of(Query::read(bad).include()), (Some("include".to_owned()), FaultKind::Invalid));
        }
    }

    #[test]
    fn an_object_is_given_pair_by_pair() {
        let query = Query::read("metadata[a]=1&metadata%5Bb%20c%5D=&metadata=x&metadata[d&other[e]=2");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(query.pairs("metadata"), [pair("a", "1"), pair("b c", "")]);
        assert_eq!(query.pairs("nothing"), []);
    }

    #[test]
    fn flags_and_numbers_are_nothing_else() {
        assert!(Query::read("stream=true").flag("stream").unwrap());
        assert!(!Query::read("stream=false").flag("stream").unwrap());
        assert!(!Query::read("").flag("stream").unwrap());
        assert_eq!(fault_of(Query::read("stream=1").flag("stream")), (Some("stream".to_owned()), FaultKind::Invalid));
        assert_eq!(Query::read("n=7").number("n").unwrap(), Some(7));
        assert_eq!(fault_of(Query::read("n=1.5").number("n")), (Some("n".to_owned()), FaultKind::Invalid));
    }
}
