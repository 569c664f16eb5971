//! The tools of a request as offered to the model: as functions, whether the server or the client runs them.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use amalgam_core::{
    CallDisplay, Fault, Loss, ResolvedTool, Scope, ServerTool, ToolRequest, file_search::FILE_SEARCH, wire_name,
};
use amalgam_engine::KnownLimits;
use amalgam_protocol::{Json, Tool, ToolChoice, ToolKind, Writer};

use super::super::request::OfferedTools;

/// How each tool of a request is offered.
pub(super) struct Offers<'a> {
    tools: Vec<Offer<'a>>,
    /// Server-run tools by the name that the model calls.
    pub(super) server: HashMap<String, Arc<ServerTool>>,
    /// Functions that the client runs.
    pub(super) client_functions: HashSet<String>,
    /// The tool lists of MCP servers.
    pub(super) listings: Vec<(String, Json)>,
    pub(super) losses: Vec<Loss>,
    /// The guidance for tools of the bank, by the name that the model calls.
    pub(super) guidance: Vec<(String, String)>,
    /// Whether the client runs a tool of the bank, or a tool is left out.
    of_bank: bool,
    allowed: Option<PermittedTools<'a>>,
}

/// The server-run tools that the limits of a caller name.
pub(crate) struct PermittedTools<'a> {
    known: Arc<KnownLimits>,
    scope: &'a Scope,
    key_id: Option<&'a str>,
}

impl<'a> PermittedTools<'a> {
    /// The tools that this caller may use; none if its limits name no tools.
    pub(crate) fn of(known: Arc<KnownLimits>, scope: &'a Scope, key_id: Option<&'a str>) -> Option<Self> {
        known.names_tools(scope, key_id).then_some(Self { known, scope, key_id })
    }

    fn contains(&self, tool: &ServerTool) -> bool {
        let names = [tool.own_name.clone(), format!("{}/{}", tool.label, tool.own_name)];
        self.known.allows_tool(self.scope, self.key_id, &names)
    }
}

enum Offer<'a> {
    /// The tool of the request, unchanged.
    Sent(&'a Tool<'a>),
    /// Functions that the server defines.
    Generated(Vec<Json>),
}

impl<'a> Offers<'a> {
    pub(super) fn new(tools: &'a [Tool<'a>], allowed: Option<PermittedTools<'a>>) -> Self {
        let mut client_functions = HashSet::new();
        tools.iter().for_each(|tool| name(tool, None, &mut client_functions));
        Self {
            tools: tools.iter().map(Offer::Sent).collect(),
            server: HashMap::new(),
            client_functions,
            listings: Vec::new(),
            losses: Vec::new(),
            guidance: Vec::new(),
            of_bank: false,
            allowed,
        }
    }

    /// Offers the tool at `index` as it was resolved.
    pub(super) fn equip(
        &mut self,
        index: usize,
        tool_request: &ToolRequest,
        equipped: ResolvedTool,
        offered_tools: OfferedTools,
    ) {
        let offer = match (tool_request, equipped) {
            (ToolRequest::Named(name), ResolvedTool::Unknown | ResolvedTool::Client { .. })
                if offered_tools == OfferedTools::ServerRun =>
            {
                self.leave_out(name)
            }
            (ToolRequest::Named(name), ResolvedTool::Unknown) if offered_tools == OfferedTools::Known => {
                self.leave_out(name)
            }
            (_, ResolvedTool::Unknown) => return,
            (ToolRequest::Named(name), ResolvedTool::Client { description, parameters, guidance }) => {
                self.of_bank = true;
                self.guidance.extend(guidance.map(|guidance| (name.clone(), guidance)));
                Offer::Generated(vec![function(name, description.as_deref(), &parameters)])
            }
            (ToolRequest::Mcp(_) | ToolRequest::FileSearch(_), ResolvedTool::Client { .. }) => return,
            (tool_request, ResolvedTool::Server(tool)) => {
                if let ToolRequest::Named(name) = tool_request {
                    self.client_functions.remove(name);
                }
                Offer::Generated(self.add(index, *tool).into_iter().collect())
            }
            (tool_request, ResolvedTool::Listed { shown, tools }) => {
                if let ToolRequest::Mcp(server) = tool_request {
                    self.listings.push((server.label.clone(), shown));
                }
                Offer::Generated(tools.into_iter().filter_map(|tool| self.add(index, tool)).collect())
            }
        };
        if let Some(slot) = self.tools.get_mut(index) {
            *slot = offer;
        }
    }

    /// Leaves out a tool, and records the loss.
    fn leave_out(&mut self, name: &str) -> Offer<'a> {
        self.client_functions.remove(name);
        self.of_bank = true;
        Offer::Generated(Vec::new())
    }

    /// Leaves out an MCP server, and records the reason.
    pub(super) fn leave_out_server(&mut self, index: usize, reason: impl Into<Cow<'static, str>>) {
        self.of_bank = true;
        self.losses.push(Loss::new(format!("tools[{index}]"), reason));
        if let Some(slot) = self.tools.get_mut(index) {
            *slot = Offer::Generated(Vec::new());
        }
    }

    /// Adds a tool that the request does not name.
    pub(super) fn add_own(&mut self, tool: ServerTool) {
        let added = self.add(self.tools.len(), tool);
        self.tools.push(Offer::Generated(added.into_iter().collect()));
    }

    /// Whether the model is offered a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.server.contains_key(name) || self.client_functions.contains(name)
    }

    /// Whether the offer differs from the request.
    pub(super) fn is_changed(&self) -> bool {
        self.of_bank || !self.server.is_empty() || !self.listings.is_empty()
    }

    /// Of two tools with the same name the first one wins. A tool that the caller's limits do not name is left out.
    fn add(&mut self, index: usize, tool: ServerTool) -> Option<Json> {
        if self.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&tool)) {
            self.of_bank = true;
            let reason = format!("the tool `{}` is not allowed for this caller", tool.own_name);
            self.losses.push(Loss::new(format!("tools[{index}]"), reason));
            return None;
        }
        if self.server.contains_key(&tool.name) || self.client_functions.contains(&tool.name) {
            self.losses.push(Loss::new(format!("tools[{index}]"), format!("another tool is named `{}`", tool.name)));
            return None;
        }
        let offered = function(&tool.name, tool.description.as_deref(), &tool.parameters);
        self.guidance.extend(tool.guidance.clone().map(|guidance| (tool.name.clone(), guidance)));
        self.server.insert(tool.name.clone(), Arc::new(tool));
        Some(offered)
    }

    /// The array of tools, at most `max_tools`.
    pub(super) fn offered(&self, max_tools: usize) -> Result<Json, Fault> {
        let count: usize = self.tools.iter().map(Offer::count).sum();
        if count > max_tools {
            return Err(Fault::invalid(
                "tools",
                format!("With those of MCP servers there are {count} tools; at most {max_tools} can be offered."),
            ));
        }
        let mut writer = Writer::default();
        writer.array(|writer| {
            for offer in &self.tools {
                match offer {
                    Offer::Sent(tool) => writer.raw(tool.raw),
                    Offer::Generated(tools) => tools.iter().for_each(|tool| writer.valid(tool.bytes())),
                }
            }
        });
        Ok(Json::from_writer(writer))
    }

    /// The tool choice, expressed by the names of the offered functions.
    pub(super) fn choice(&self, choice: &ToolChoice<'_>) -> Result<Json, Fault> {
        let mut writer = Writer::default();
        match choice {
            choice @ (ToolChoice::Mcp { .. } | ToolChoice::Hosted(..)) if self.is_server_choice(choice) => {
                let names = self.chosen(choice);
                match names.as_slice() {
                    [] => return Err(Fault::invalid("tool_choice", "The chosen tool is not among `tools`.")),
                    [name] => write_function(&mut writer, name),
                    names => write_allowed(&mut writer, true, |writer| {
                        names.iter().for_each(|name| write_function(writer, name));
                    }),
                }
            }
            ToolChoice::Allowed(allowed) => write_allowed(&mut writer, allowed.required, |writer| {
                for choice in &allowed.tools {
                    match self.is_server_choice(choice) {
                        true => self.chosen(choice).into_iter().for_each(|name| write_function(writer, name)),
                        false => choice.write(writer),
                    }
                }
            }),
            choice => choice.write(&mut writer),
        }
        Ok(Json::from_writer(writer))
    }

    /// Whether a choice names tools that only this server offers: those of an MCP server, or a search.
    fn is_server_choice(&self, choice: &ToolChoice<'_>) -> bool {
        match choice {
            ToolChoice::Mcp { .. } => true,
            ToolChoice::Hosted(..) => !self.chosen(choice).is_empty(),
            _ => false,
        }
    }

    /// The names of the tools that a choice of an MCP server or of a search selects.
    fn chosen(&self, choice: &ToolChoice<'_>) -> Vec<&str> {
        let means = |tool: &ServerTool| match choice {
            ToolChoice::Mcp { server_label, name, .. } => {
                tool.label == **server_label && name.as_ref().is_none_or(|name| tool.own_name == **name)
            }
            ToolChoice::Hosted(kind, _) => {
                **kind == *FILE_SEARCH && matches!(tool.shown, CallDisplay::FileSearch { .. })
            }
            _ => false,
        };
        let mut names: Vec<&str> =
            self.server.values().filter(|tool| means(tool)).map(|tool| tool.name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

impl Offer<'_> {
    fn count(&self) -> usize {
        match self {
            Self::Sent(Tool { kind: ToolKind::Namespace(group), .. }) => group.tools.0.len(),
            Self::Sent(_) => 1,
            Self::Generated(tools) => tools.len(),
        }
    }
}

/// Collects the names under which the model calls a client's tool.
fn name(tool: &Tool<'_>, namespace: Option<&str>, names: &mut HashSet<String>) {
    match &tool.kind {
        ToolKind::Function(function) => {
            names.insert(function.name.clone().into_owned());
            names.insert(wire_name(namespace, &function.name));
        }
        ToolKind::Custom(custom) => {
            names.insert(custom.name.clone().into_owned());
            names.insert(wire_name(namespace, &custom.name));
        }
        ToolKind::Namespace(group) => group.tools.0.iter().for_each(|tool| name(tool, Some(&group.name), names)),
        ToolKind::Client(tool, _) => {
            names.insert(tool.name().to_owned());
        }
        ToolKind::Hosted(..) | ToolKind::Other(_) => {}
    }
}

/// A function definition. The server checks its schema, so the upstream need not be strict.
fn function(name: &str, description: Option<&str>, parameters: &Json) -> Json {
    let mut writer = Writer::with_capacity(parameters.bytes().len() + 256);
    writer.object(|writer| {
        writer.key("type").string("function");
        writer.key("name").string(name);
        if let Some(description) = description {
            writer.key("description").string(description);
        }
        writer.key("parameters").valid(parameters.bytes());
        writer.key("strict").bool(false);
    });
    Json::from_writer(writer)
}

/// The choice of one function.
pub(super) fn named(name: &str) -> Json {
    let mut writer = Writer::default();
    write_function(&mut writer, name);
    Json::from_writer(writer)
}

fn write_function(writer: &mut Writer, name: &str) {
    writer.object(|writer| {
        writer.key("type").string("function");
        writer.key("name").string(name);
    });
}

fn write_allowed(writer: &mut Writer, required: bool, tools: impl FnOnce(&mut Writer)) {
    writer.object(|writer| {
        writer.key("type").string("allowed_tools");
        writer.key("mode").string(if required { "required" } else { "auto" });
        writer.key("tools").array(tools);
    });
}
