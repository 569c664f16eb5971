//! The tools of a request as the model is offered them: as functions, whether the server or the client runs them.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use amalgam_core::{
    CallDisplay, Fault, Loss, ResolvedTool, ServerTool, ToolRequest, file_search::FILE_SEARCH, wire_name,
};
use amalgam_protocol::{Json, Tool, ToolChoice, ToolKind, Writer};

use super::super::request::OfferedTools;

/// What becomes of each tool of a request.
pub(super) struct Offers<'a> {
    tools: Vec<Offer<'a>>,
    /// By the name that the model calls.
    pub(super) server: HashMap<String, Arc<ServerTool>>,
    /// Functions that the client runs.
    pub(super) of_client: HashSet<String>,
    /// What is shown of MCP servers.
    pub(super) listings: Vec<(String, Json)>,
    pub(super) losses: Vec<Loss>,
    /// How to use tools of the bank, by the name that the model calls.
    pub(super) guidance: Vec<(String, String)>,
    /// Tools of the bank that the client runs.
    of_bank: bool,
}

enum Offer<'a> {
    /// As it was sent.
    Sent(&'a Tool<'a>),
    /// In our words.
    Ours(Vec<Json>),
}

impl<'a> Offers<'a> {
    pub(super) fn new(tools: &'a [Tool<'a>]) -> Self {
        let mut of_client = HashSet::new();
        tools.iter().for_each(|tool| name(tool, None, &mut of_client));
        Self {
            tools: tools.iter().map(Offer::Sent).collect(),
            server: HashMap::new(),
            of_client,
            listings: Vec::new(),
            losses: Vec::new(),
            guidance: Vec::new(),
            of_bank: false,
        }
    }

    /// Says what the tool at `index` turned out to be.
    pub(super) fn equip(&mut self, index: usize, asked: &ToolRequest, equipped: ResolvedTool, which: OfferedTools) {
        let offer = match (asked, equipped) {
            (ToolRequest::Named(name), ResolvedTool::Unknown | ResolvedTool::Client { .. })
                if which == OfferedTools::ServerRun =>
            {
                self.leave_out(name)
            }
            (ToolRequest::Named(name), ResolvedTool::Unknown) if which == OfferedTools::Known => self.leave_out(name),
            (_, ResolvedTool::Unknown) => return,
            (ToolRequest::Named(name), ResolvedTool::Client { description, parameters, guidance }) => {
                self.of_bank = true;
                self.guidance.extend(guidance.map(|guidance| (name.clone(), guidance)));
                Offer::Ours(vec![function(name, description.as_deref(), &parameters)])
            }
            (ToolRequest::Mcp(_) | ToolRequest::FileSearch(_), ResolvedTool::Client { .. }) => return,
            (asked, ResolvedTool::Server(tool)) => {
                if let ToolRequest::Named(name) = asked {
                    self.of_client.remove(name);
                }
                Offer::Ours(self.add(index, *tool).into_iter().collect())
            }
            (asked, ResolvedTool::Listed { shown, tools }) => {
                if let ToolRequest::Mcp(server) = asked {
                    self.listings.push((server.label.clone(), shown));
                }
                Offer::Ours(tools.into_iter().filter_map(|tool| self.add(index, tool)).collect())
            }
        };
        if let Some(place) = self.tools.get_mut(index) {
            *place = offer;
        }
    }

    /// A tool that the model does not hear of.
    fn leave_out(&mut self, name: &str) -> Offer<'a> {
        self.of_client.remove(name);
        self.of_bank = true;
        Offer::Ours(Vec::new())
    }

    /// An MCP server that the model does not hear of, and why.
    pub(super) fn leave_out_server(&mut self, index: usize, reason: impl Into<Cow<'static, str>>) {
        self.of_bank = true;
        self.losses.push(Loss::new(format!("tools[{index}]"), reason));
        if let Some(place) = self.tools.get_mut(index) {
            *place = Offer::Ours(Vec::new());
        }
    }

    /// Adds a tool that the request does not name.
    pub(super) fn bring(&mut self, tool: ServerTool) {
        let brought = self.add(self.tools.len(), tool);
        self.tools.push(Offer::Ours(brought.into_iter().collect()));
    }

    /// Whether the model is offered a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.server.contains_key(name) || self.of_client.contains(name)
    }

    /// Whether anything is other than it was sent.
    pub(super) fn has_any(&self) -> bool {
        self.of_bank || !self.server.is_empty() || !self.listings.is_empty()
    }

    /// The first of two tools of one name wins.
    fn add(&mut self, index: usize, tool: ServerTool) -> Option<Json> {
        if self.server.contains_key(&tool.name) || self.of_client.contains(&tool.name) {
            self.losses.push(Loss::new(format!("tools[{index}]"), format!("another tool is named `{}`", tool.name)));
            return None;
        }
        let offered = function(&tool.name, tool.description.as_deref(), &tool.parameters);
        self.guidance.extend(tool.guidance.clone().map(|guidance| (tool.name.clone(), guidance)));
        self.server.insert(tool.name.clone(), Arc::new(tool));
        Some(offered)
    }

    /// The tools, of which there may be `most`.
    pub(super) fn offered(&self, most: usize) -> Result<Json, Fault> {
        let count: usize = self.tools.iter().map(Offer::count).sum();
        if count > most {
            return Err(Fault::invalid(
                "tools",
                format!("With those of MCP servers there are {count} tools; at most {most} can be offered."),
            ));
        }
        let mut writer = Writer::default();
        writer.array(|writer| {
            for offer in &self.tools {
                match offer {
                    Offer::Sent(tool) => writer.raw(tool.raw),
                    Offer::Ours(tools) => tools.iter().for_each(|tool| writer.valid(tool.bytes())),
                }
            }
        });
        Ok(Json::from_writer(writer))
    }

    /// A choice among the tools in the words that they are offered in.
    pub(super) fn choice(&self, choice: &ToolChoice<'_>) -> Result<Json, Fault> {
        let mut writer = Writer::default();
        match choice {
            choice @ (ToolChoice::Mcp { .. } | ToolChoice::Hosted(..)) if self.is_ours(choice) => {
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
                    match self.is_ours(choice) {
                        true => self.chosen(choice).into_iter().for_each(|name| write_function(writer, name)),
                        false => choice.write(writer),
                    }
                }
            }),
            choice => choice.write(&mut writer),
        }
        Ok(Json::from_writer(writer))
    }

    /// Whether a choice is about what only this server has under such a name: tools of an MCP server, or a search of ours.
    fn is_ours(&self, choice: &ToolChoice<'_>) -> bool {
        match choice {
            ToolChoice::Mcp { .. } => true,
            ToolChoice::Hosted(..) => !self.chosen(choice).is_empty(),
            _ => false,
        }
    }

    /// The names of the tools that a choice of an MCP server's or of a search means.
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
            Self::Ours(tools) => tools.len(),
        }
    }
}

/// The names that calls of a client's tool come under.
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

/// A function as a request writes it. Its schema is checked here, so that the upstream need not keep to it strictly.
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
