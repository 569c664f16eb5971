//! Tools as an upstream with only functions sees them, and the reverse mapping of calls.
//!
//! Custom tools, namespaces and tools with their own item types are offered as plain functions; the [`CallMap`] maps
//! each name back, so that a call becomes the item that the client expects.

mod schemas;

use std::{borrow::Cow, collections::HashMap};

use amalgam_protocol::{
    AllowedTools, ClientTool, CreateResponse, CustomTool, FunctionTool, Item, ItemKind, JsonStr, Literal, Raw, Tool,
    ToolChoice, ToolKind, Writer,
};

use crate::{
    fault::Fault,
    history::{Call, Entry, History, Payload},
    loss::Loss,
};

/// The maximum length of a function name that every upstream accepts.
const MAX_NAME_BYTES: usize = 64;

/// The kind of item that a call becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// `function_call`
    Function,
    /// `custom_tool_call`
    Custom,
    /// `shell_call` and its like.
    Client(ClientTool),
}

/// The offered functions and the tool choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Toolset<'a> {
    /// The functions in the request's order, without duplicate names.
    pub offers: Vec<Offer<'a>>,
    /// The tool choice.
    pub choice: Choice,
    /// Whether one answer may contain several calls; none if the caller did not set it.
    pub parallel: Option<bool>,
    /// The tools that could not be offered.
    pub losses: Vec<Loss>,
}

/// One function.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer<'a> {
    /// The name that the upstream sees.
    pub name: String,
    /// Its description for the model.
    pub description: Option<Description<'a>>,
    /// The JSON Schema of its arguments.
    pub parameters: Option<Raw<'a>>,
    /// Whether arguments must follow the schema exactly.
    pub strict: Option<bool>,
    /// The tool that it represents.
    pub target: CallTarget,
}

/// A description: the client's JSON string unchanged, or text of this server.
#[derive(Debug, Clone, PartialEq)]
pub enum Description<'a> {
    /// As the client wrote it.
    Json(JsonStr<'a>),
    /// Composed by this server.
    Own(String),
}

impl Description<'_> {
    /// Writes the text as a JSON string.
    pub fn write(&self, writer: &mut Writer) {
        match self {
            Self::Json(text) => writer.json_str(*text),
            Self::Own(text) => writer.string(text),
        }
    }
}

/// The tool choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// No function may be called.
    None,
    /// The model decides.
    Auto,
    /// Some function must be called.
    Required,
    /// This function must be called; by the name that the upstream sees.
    Named(String),
}

/// The tool that a function name represents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTarget {
    /// The kind of item that a call becomes.
    pub kind: CallKind,
    /// The client's name of the tool.
    pub name: String,
    /// The client's namespace of the tool.
    pub namespace: Option<String>,
}

/// Maps function names in an answer to tools.
#[derive(Debug, Clone, Default)]
pub struct CallMap(HashMap<String, CallTarget>);

impl CallMap {
    /// Whether a function of this name was offered.
    pub fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The target of a name; a name that was never offered is a function with that name.
    pub fn target(&self, name: &str) -> CallTarget {
        self.0.get(name).cloned().unwrap_or_else(|| CallTarget {
            kind: CallKind::Function,
            name: name.to_owned(),
            namespace: None,
        })
    }
}

impl<'a> Toolset<'a> {
    /// All tools of the request and its history, as plain functions.
    pub fn plain(settings: &CreateResponse<'a>, history: &History<'a>) -> Result<Self, Fault> {
        let parallel = settings.parallel_tool_calls;
        let toolset = Self { offers: Vec::new(), choice: Choice::Auto, parallel, losses: Vec::new() };
        let mut offering = Offering { toolset, places: HashMap::new() };
        let client_search = settings.tools.iter().any(|tool| {
            matches!(&tool.kind, ToolKind::Client(ClientTool::ToolSearch, search) if search.execution.as_deref() == Some("client"))
        });
        for (index, tool) in settings.tools.iter().enumerate() {
            offering.offer(tool, None, client_search, &format!("tools[{index}]"));
        }
        for entry in &history.entries {
            match entry {
                Entry::Opaque(Item { kind: ItemKind::AdditionalTools(additional), .. }) => {
                    for tool in &additional.tools.0 {
                        offering.offer(tool, None, false, "input.additional_tools");
                    }
                }
                // Tools that a search found can be called from then on.
                Entry::Output(output) if output.kind == CallKind::Client(ClientTool::ToolSearch) => {
                    let path = "input.tool_search_output";
                    match output.item.get("tools").filter(|found| !found.is_null()).map(Tool::list).transpose() {
                        Ok(found) => {
                            found.iter().flatten().for_each(|tool| offering.offer(tool, None, false, path));
                        }
                        // Such requests are refused today; this one was stored by an earlier version.
                        Err(_) => offering.toolset.losses.push(Loss::new(path, "its list of tools cannot be read")),
                    }
                }
                _ => {}
            }
        }
        let mut toolset = offering.toolset;
        toolset.choose(settings.tool_choice.as_ref())?;
        Ok(toolset)
    }

    /// The mapping for the calls of the answer.
    pub fn call_map(&self) -> CallMap {
        CallMap(self.offers.iter().map(|offer| (offer.name.clone(), offer.target.clone())).collect())
    }

    fn choose(&mut self, choice: Option<&ToolChoice<'a>>) -> Result<(), Fault> {
        self.choice = match choice {
            None | Some(ToolChoice::Auto) => Choice::Auto,
            Some(ToolChoice::None) => Choice::None,
            Some(ToolChoice::Required) => {
                if self.offers.is_empty() {
                    return Err(Fault::invalid(
                        "tool_choice",
                        "`required` needs at least one tool that can be called.",
                    ));
                }
                Choice::Required
            }
            Some(ToolChoice::Allowed(AllowedTools { required, tools })) => {
                self.offers.retain(|offer| tools.iter().any(|allowed| names(allowed, offer)));
                match (required, self.offers.is_empty()) {
                    (true, true) => {
                        return Err(Fault::invalid("tool_choice.tools", "None of the allowed tools can be called."));
                    }
                    (true, false) => Choice::Required,
                    (false, _) => Choice::Auto,
                }
            }
            Some(ToolChoice::Hosted(kind, _)) => {
                self.losses.push(Loss::new("tool_choice", format!("`{kind}` has no implementation here")));
                Choice::Auto
            }
            Some(named) => {
                self.offers.retain(|offer| names(named, offer));
                // A full name means that tool, even if a namespace has a tool with the same name.
                if self.offers.iter().any(|offer| is_whole_name(named, offer)) {
                    self.offers.retain(|offer| is_whole_name(named, offer));
                }
                match self.offers.as_slice() {
                    [offer] => Choice::Named(offer.name.clone()),
                    [] => return Err(Fault::invalid("tool_choice", "The chosen tool is not among `tools`.")),
                    [one, other, ..] => {
                        let message = format!(
                            "The chosen name is that of several tools; `{}` and `{}` are whole names.",
                            one.name, other.name
                        );
                        return Err(Fault::invalid("tool_choice", message));
                    }
                }
            }
        };
        Ok(())
    }
}

/// A toolset under construction, with the index of each name.
struct Offering<'a> {
    toolset: Toolset<'a>,
    places: HashMap<String, usize>,
}

impl<'a> Offering<'a> {
    fn offer(&mut self, tool: &Tool<'a>, namespace: Option<&str>, searchable: bool, path: &str) {
        match &tool.kind {
            // Left out until the client's search finds it.
            ToolKind::Function(function) if searchable && function.defer_loading == Some(true) => {}
            ToolKind::Function(function) => self.add(function_offer(function, namespace), path),
            ToolKind::Custom(custom) => self.add(custom_offer(custom, namespace), path),
            ToolKind::Namespace(group) => {
                for (index, nested) in group.tools.0.iter().enumerate() {
                    self.offer(nested, Some(&group.name), searchable, &format!("{path}.tools[{index}]"));
                }
            }
            ToolKind::Client(ClientTool::ToolSearch, search) if search.execution.as_deref() == Some("client") => {
                self.add(
                    Offer {
                        description: search.description.map(Description::Json),
                        parameters: Some(search.parameters.unwrap_or_else(|| schemas::of(ClientTool::ToolSearch))),
                        ..client_offer(ClientTool::ToolSearch)
                    },
                    path,
                );
            }
            // All tools that such a search could find are offered directly, so that only the search itself is missing.
            ToolKind::Client(ClientTool::ToolSearch, _) => self.lose(path, "tool_search by the server"),
            ToolKind::Client(ClientTool::Computer, _) => self.lose(path, "computer"),
            ToolKind::Client(tool, _) => self.add(client_offer(*tool), path),
            ToolKind::Hosted(_, kind) | ToolKind::Other(kind) => self.lose(path, kind),
        }
    }

    /// Of two tools with the same name the first one wins.
    fn add(&mut self, offer: Offer<'a>, path: &str) {
        let Toolset { offers, losses, .. } = &mut self.toolset;
        match self.places.get(&offer.name).and_then(|place| offers.get(*place)) {
            None => {
                self.places.insert(offer.name.clone(), offers.len());
                offers.push(offer);
            }
            Some(same) if same.target == offer.target => {}
            Some(_) => losses.push(Loss::new(path.to_owned(), "another tool has this name")),
        }
    }

    fn lose(&mut self, path: &str, kind: &str) {
        self.toolset.losses.push(Loss::new(path.to_owned(), format!("`{kind}` has no implementation here")));
    }
}

/// Whether a choice names this offer. A namespaced tool may be named with or without its namespace.
fn names(choice: &ToolChoice<'_>, offer: &Offer<'_>) -> bool {
    match choice {
        ToolChoice::Function(name, _) | ToolChoice::Custom(name, _) => {
            offer.target.name == **name || offer.name == **name
        }
        ToolChoice::Client(tool, _) => offer.target.kind == CallKind::Client(*tool),
        ToolChoice::Hosted(name, _) => offer.target.namespace.as_deref() == Some(&**name),
        ToolChoice::Mcp { .. }
        | ToolChoice::None
        | ToolChoice::Auto
        | ToolChoice::Required
        | ToolChoice::Allowed(_) => false,
    }
}

/// Whether a choice names this offer by the name that the upstream sees.
fn is_whole_name(choice: &ToolChoice<'_>, offer: &Offer<'_>) -> bool {
    matches!(choice, ToolChoice::Function(name, _) | ToolChoice::Custom(name, _) if offer.name == **name)
}

fn function_offer<'a>(function: &FunctionTool<'a>, namespace: Option<&str>) -> Offer<'a> {
    Offer {
        name: wire_name(namespace, &function.name),
        description: function.description.map(Description::Json),
        parameters: function.parameters.filter(|schema| !schema.is_null()),
        strict: function.strict,
        target: target(CallKind::Function, &function.name, namespace),
    }
}

/// A custom tool becomes a function with one string; its grammar goes into the description.
fn custom_offer<'a>(custom: &CustomTool<'a>, namespace: Option<&str>) -> Offer<'a> {
    let mut description = custom.description.map(JsonStr::decode).unwrap_or_default().into_owned();
    if let Some(format) = custom.format
        && let Some(definition) = format.get_str("definition")
    {
        let syntax = format.get_str("syntax").unwrap_or(Cow::Borrowed("given"));
        description.push_str(&format!("\n\nThe input must follow this {syntax} grammar:\n{definition}"));
    }
    Offer {
        name: wire_name(namespace, &custom.name),
        description: Some(Description::Own(description)),
        parameters: Some(schemas::custom_input()),
        strict: None,
        target: target(CallKind::Custom, &custom.name, namespace),
    }
}

fn client_offer(tool: ClientTool) -> Offer<'static> {
    Offer {
        name: tool.name().to_owned(),
        description: Some(Description::Own(schemas::description(tool).to_owned())),
        parameters: Some(schemas::of(tool)),
        strict: None,
        target: target(CallKind::Client(tool), tool.name(), None),
    }
}

fn target(kind: CallKind, name: &str, namespace: Option<&str>) -> CallTarget {
    CallTarget { kind, name: name.to_owned(), namespace: namespace.map(str::to_owned) }
}

/// The name that the upstream sees: `name`, or `namespace__name`; at most 64 letters, digits, `_` and `-`.
pub fn wire_name(namespace: Option<&str>, name: &str) -> String {
    let full = match namespace {
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.to_owned(),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if full.chars().all(plain) && full.len() <= MAX_NAME_BYTES {
        return full;
    }
    // Deterministic, so that a call in the history has the same name as its tool: FNV-1a over the full name.
    let hash = full
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let plain_name: String = full.chars().map(|c| if plain(c) { c } else { '_' }).take(MAX_NAME_BYTES - 9).collect();
    format!("{plain_name}_{:08x}", hash as u32)
}

impl<'a> Call<'a> {
    /// The name of this call's tool at an upstream with plain functions.
    pub fn wire_name(&self) -> String {
        wire_name(self.namespace.as_deref(), &self.name)
    }

    /// The arguments of this call as a function's: escaped JSON text, without quotes.
    pub fn wire_arguments(&self) -> Literal {
        match self.payload {
            Payload::Arguments(text) if text.is_empty() => Literal::from_text("{}"),
            Payload::Arguments(text) => text.into(),
            Payload::Input(text) => {
                let mut writer = Writer::with_capacity(text.escaped().len() + 16);
                writer.object(|writer| writer.key("input").json_str(text));
                Literal::from_text(&String::from_utf8_lossy(writer.bytes()))
            }
            payload @ (Payload::Value(_) | Payload::Queries(_)) => Literal::from_text(&payload.text()),
        }
    }
}

/// The text inside the arguments of a wrapped custom tool; the arguments themselves if a model omitted the wrapping.
pub fn unwrap_custom(arguments: &str) -> String {
    let wrapped = Raw::parse(arguments.as_bytes()).ok();
    let inner = wrapped.and_then(|raw| match raw.as_str() {
        Some(text) => Some(text.decode().into_owned()),
        None => raw.get_str("input").map(Cow::into_owned),
    });
    inner.unwrap_or_else(|| arguments.to_owned())
}

#[cfg(test)]
#[path = "toolset_tests.rs"]
mod tests;
