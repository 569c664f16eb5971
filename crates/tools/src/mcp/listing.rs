//! The tool list of an MCP server: bounded, checked, and untrusted.

use std::collections::HashSet;

use amalgam_protocol::{Json, Raw, Shape, Writer};
use tracing::warn;

use crate::text;

/// More tools than a model can distinguish.
const MAX_TOOLS: usize = 128;
const MAX_PAGES: usize = 32;
const MAX_CURSOR_BYTES: usize = 4 * 1024;
const MAX_NAME_BYTES: usize = 128;
const MAX_DESCRIPTION_BYTES: usize = 4 * 1024;
const MAX_PARAMETERS_BYTES: usize = 64 * 1024;
const MAX_ANNOTATIONS_BYTES: usize = 4 * 1024;
/// The maximum size of all tools of one server, because lists of many servers are cached.
const MAX_LIST_BYTES: usize = 512 * 1024;

/// A tool as its server describes it. All of it is untrusted text.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTool {
    /// Its name at its server: letters, digits, `_`, `-`, `.` and `/`. Upstreams accept fewer characters.
    pub name: String,
    /// The server's description; at most 4 KiB.
    pub description: Option<String>,
    /// The JSON Schema of its arguments; an object that has not been compiled yet.
    pub parameters: Json,
    /// Further hints of the server, an object.
    pub annotations: Option<Json>,
}

impl ListedTool {
    /// Whether it declares that it changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.hints("readOnlyHint")
    }

    /// Whether it declares that it is idempotent.
    pub fn is_idempotent(&self) -> bool {
        self.is_read_only() || self.hints("idempotentHint")
    }

    fn hints(&self, name: &str) -> bool {
        let hint = self.annotations.as_ref().and_then(|annotations| annotations.raw().get(name));
        hint.and_then(Raw::as_bool) == Some(true)
    }

    /// Its approximate size in memory.
    fn bytes(&self) -> usize {
        let annotations = self.annotations.as_ref().map_or(0, |annotations| annotations.bytes().len());
        self.description.as_ref().map_or(0, String::len) + self.parameters.bytes().len() + annotations
    }
}

/// Collects the pages of a list.
#[derive(Default)]
pub(super) struct Listing {
    tools: Vec<ListedTool>,
    names: HashSet<String>,
    bytes: usize,
    pages: usize,
    left_out: usize,
    cursor: Option<String>,
}

impl Listing {
    /// The parameters of the request for the next page.
    pub(super) fn params(&self) -> Json {
        let mut writer = Writer::default();
        writer.object(|writer| {
            if let Some(cursor) = &self.cursor {
                writer.key("cursor").string(cursor);
            }
        });
        Json::from_writer(writer)
    }

    /// Adds a page, and returns whether to request another one.
    pub(super) fn take(&mut self, page: Raw<'_>) -> bool {
        self.pages += 1;
        for tool in page.get("tools").into_iter().flat_map(Raw::elements) {
            match read(tool) {
                Some(tool) if self.has_room(&tool) && self.names.insert(tool.name.clone()) => {
                    self.bytes += tool.bytes();
                    self.tools.push(tool);
                }
                _ => self.left_out += 1,
            }
        }
        let next = page.get_str("nextCursor").filter(|cursor| !cursor.is_empty() && cursor.len() <= MAX_CURSOR_BYTES);
        let next = next.map(std::borrow::Cow::into_owned);
        // A cursor that leads to itself would make the list endless.
        let goes_on = next.is_some() && next != self.cursor && self.pages < MAX_PAGES && self.tools.len() < MAX_TOOLS;
        self.cursor = next;
        goes_on
    }

    fn has_room(&self, tool: &ListedTool) -> bool {
        self.tools.len() < MAX_TOOLS && self.bytes + tool.bytes() <= MAX_LIST_BYTES
    }

    /// The tools. Logs how many were dropped.
    pub(super) fn finish(self, label: &str) -> Vec<ListedTool> {
        if self.left_out > 0 {
            warn!(mcp.server = label, left_out = self.left_out, "tools of an MCP server are left out");
        }
        self.tools
    }
}

fn read(tool: Raw<'_>) -> Option<ListedTool> {
    let name = tool.get_str("name")?.into_owned();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(plain) {
        return None;
    }
    let parameters = tool.get("inputSchema").unwrap_or(Raw::EMPTY_OBJECT);
    if parameters.shape() != Shape::Object || parameters.text().len() > MAX_PARAMETERS_BYTES {
        return None;
    }
    let description = tool.get_str("description");
    let description = description.map(|words| text::beginning(&words, MAX_DESCRIPTION_BYTES).to_owned());
    let annotations = tool.get("annotations").filter(|hints| hints.shape() == Shape::Object);
    let annotations = annotations.filter(|hints| hints.text().len() <= MAX_ANNOTATIONS_BYTES).map(Json::from);
    Some(ListedTool { name, description, parameters: Json::from(parameters), annotations })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn taken(listing: &mut Listing, page: &Value) -> bool {
        listing.take(Raw::parse(page.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn tools_that_cannot_be_used_are_left_out_and_the_others_stay() {
        let mut listing = Listing::default();
        let page = json!({"tools": [
            {"name": "a.b/c-d_1", "description": "é".repeat(4_000), "inputSchema": {"type": "object"}},
            {"name": "bare"},
            {"name": "bare", "description": "again"},
            {"name": ""}, {"name": "a b"}, {"name": "a\u{1b}"}, {"name": "x".repeat(129)}, {"name": 1}, {}, 7,
            {"name": "list", "inputSchema": []},
            {"name": "large", "inputSchema": {"description": "x".repeat(70_000)}},
        ]});
        assert!(!taken(&mut listing, &page));
        let tools = listing.finish("test");
        assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a.b/c-d_1", "bare"]);
        assert_eq!(tools[0].description.as_ref().unwrap().len(), MAX_DESCRIPTION_BYTES);
        assert_eq!((tools[1].description.as_ref(), tools[1].parameters.raw().text()), (None, "{}"));
    }

    #[test]
    fn a_list_ends_whatever_the_server_says() {
        let mut same = Listing::default();
        assert!(taken(&mut same, &json!({"tools": [], "nextCursor": "a"})));
        assert_eq!(same.params().raw().text(), r#"{"cursor":"a"}"#);
        assert!(!taken(&mut same, &json!({"tools": [], "nextCursor": "a"})), "the same page again");

        let mut endless = Listing::default();
        let pages = (0..1_000).take_while(|n| taken(&mut endless, &json!({"nextCursor": n.to_string()}))).count();
        assert_eq!(pages, MAX_PAGES - 1);

        let mut many = Listing::default();
        let tools: Vec<_> = (0..1_000).map(|n| json!({"name": format!("t{n}")})).collect();
        assert!(!taken(&mut many, &json!({"tools": tools, "nextCursor": "b"})));
        assert_eq!(many.finish("test").len(), MAX_TOOLS);

        let mut heavy = Listing::default();
        let weight = json!({"description": "x".repeat(60_000)});
        let tools: Vec<_> = (0..100).map(|n| json!({"name": format!("t{n}"), "inputSchema": weight})).collect();
        taken(&mut heavy, &json!({"tools": tools}));
        assert_eq!(heavy.finish("test").len(), MAX_LIST_BYTES / weight.to_string().len());
    }

    #[test]
    fn a_tool_is_taken_at_its_word_about_what_it_changes_and_only_there() {
        let mut listing = Listing::default();
        let large = json!({"readOnlyHint": true, "title": "x".repeat(5_000)});
        let page = json!({"tools": [
            {"name": "reads", "annotations": {"readOnlyHint": true}},
            {"name": "repeats", "annotations": {"readOnlyHint": false, "idempotentHint": true}},
            {"name": "bare"},
            {"name": "odd", "annotations": {"readOnlyHint": "true", "idempotentHint": 1}},
            {"name": "large", "annotations": large},
            {"name": "list", "annotations": [true]},
        ]});
        taken(&mut listing, &page);
        let tools = listing.finish("test");
        let hints: Vec<_> = tools.iter().map(|tool| (tool.is_read_only(), tool.is_idempotent())).collect();
        let plain = (false, false);
        assert_eq!(hints, [(true, true), (false, true), plain, plain, plain, plain]);
    }
}
