//! Items: the entries of a conversation's input and output.
//!
//! An [`Item`] is a view of the text that it was read from. Kinds that the server handles have a typed view; every
//! other kind is known by name or is [`ItemKind::Other`]. In all cases `raw` is the item, byte for byte.

use std::borrow::Cow;

use crate::{
    content::{Content, Output, Part},
    json::{Json, JsonStr, Raw},
    shape::{Field, ShapeError, list, object, shape_keep, shape_name, shape_take, view},
    tool::Tool,
};

/// One item, with the text that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Item<'a> {
    /// The item as it was written.
    pub raw: Raw<'a>,
    /// Its kind.
    pub kind: ItemKind<'a>,
}

/// The kinds of items.
#[derive(Debug, Clone, PartialEq)]
pub enum ItemKind<'a> {
    /// `message`, and every item with a role and without a type.
    Message(Message<'a>),
    /// `function_call`
    FunctionCall(FunctionCall<'a>),
    /// `function_call_output`
    FunctionCallOutput(CallOutput<'a>),
    /// `custom_tool_call`
    CustomToolCall(CustomToolCall<'a>),
    /// `custom_tool_call_output`
    CustomToolCallOutput(CallOutput<'a>),
    /// `reasoning`
    Reasoning(Reasoning<'a>),
    /// A call of a client-run tool with an item type of its own: shell, local shell, apply patch, tool search.
    ClientCall(ClientTool, ClientCall<'a>),
    /// The output of such a call.
    ClientCallOutput(ClientTool, ClientCallOutput<'a>),
    /// `additional_tools`: tools that arrive inside the history.
    AdditionalTools(AdditionalTools<'a>),
    /// `item_reference`
    Reference(Reference<'a>),
    /// `compaction`, `compaction_summary`
    Compaction(Compaction<'a>),
    /// `agent_message`
    AgentMessage(Message<'a>),
    /// An item of a server-run tool, or a request for an approval.
    Hosted(HostedItem),
    /// A kind that this version does not know.
    Other(Cow<'a, str>),
}

/// Client-run tools with item types of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientTool {
    /// `shell`
    Shell,
    /// `local_shell`
    LocalShell,
    /// `apply_patch`
    ApplyPatch,
    /// `tool_search`
    ToolSearch,
    /// `computer`, `computer_use_preview`
    Computer,
}

impl ClientTool {
    /// The name of the tool, which is also the prefix of its item types.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::LocalShell => "local_shell",
            Self::ApplyPatch => "apply_patch",
            Self::ToolSearch => "tool_search",
            Self::Computer => "computer",
        }
    }

    /// The `type` of a call.
    pub fn call_type(self) -> &'static str {
        match self {
            Self::Shell => "shell_call",
            Self::LocalShell => "local_shell_call",
            Self::ApplyPatch => "apply_patch_call",
            Self::ToolSearch => "tool_search_call",
            Self::Computer => "computer_call",
        }
    }

    /// The field of the call that holds its arguments.
    pub fn payload_field(self) -> &'static str {
        match self {
            Self::Shell | Self::LocalShell | Self::Computer => "action",
            Self::ApplyPatch => "operation",
            Self::ToolSearch => "arguments",
        }
    }
}

/// Items of server-run tools. Known by name, passed on unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostedItem {
    /// `file_search_call`
    FileSearchCall,
    /// `web_search_call`
    WebSearchCall,
    /// `image_generation_call`
    ImageGenerationCall,
    /// `code_interpreter_call`
    CodeInterpreterCall,
    /// `mcp_call`
    McpCall,
    /// `mcp_list_tools`
    McpListTools,
    /// `mcp_approval_request`
    McpApprovalRequest,
    /// `mcp_approval_response`
    McpApprovalResponse,
    /// `program`
    Program,
    /// `program_output`
    ProgramOutput,
    /// `compaction_trigger`
    CompactionTrigger,
    /// `multi_agent_call`
    MultiAgentCall,
    /// `multi_agent_call_output`
    MultiAgentCallOutput,
}

impl HostedItem {
    /// Every kind with its wire name.
    pub const ALL: [(&'static str, HostedItem); 13] = [
        ("file_search_call", Self::FileSearchCall),
        ("web_search_call", Self::WebSearchCall),
        ("image_generation_call", Self::ImageGenerationCall),
        ("code_interpreter_call", Self::CodeInterpreterCall),
        ("mcp_call", Self::McpCall),
        ("mcp_list_tools", Self::McpListTools),
        ("mcp_approval_request", Self::McpApprovalRequest),
        ("mcp_approval_response", Self::McpApprovalResponse),
        ("program", Self::Program),
        ("program_output", Self::ProgramOutput),
        ("compaction_trigger", Self::CompactionTrigger),
        ("multi_agent_call", Self::MultiAgentCall),
        ("multi_agent_call_output", Self::MultiAgentCallOutput),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(wire, _)| *wire == name).map(|(_, kind)| *kind)
    }
}

/// The role of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The user, and every unknown role in stored items and items of upstreams.
    User,
    /// The model.
    Assistant,
    /// Instructions.
    System,
    /// Instructions of the application.
    Developer,
}

impl Role {
    /// The names of all roles.
    pub const NAMES: [&str; 4] = ["user", "assistant", "system", "developer"];

    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
            Self::Developer => "developer",
        }
    }
}

impl<'a> Field<'a> for Role {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        Ok(match &*JsonStr::read(raw)?.decode() {
            "assistant" => Self::Assistant,
            "system" => Self::System,
            "developer" => Self::Developer,
            _ => Self::User,
        })
    }
}

view! {
    /// A message.
    pub struct Message<'a> {
        /// The server's id, or the client's.
        id: Option<Cow<'a, str>>,
        /// The role of a message.
        role: Role,
        /// The content.
        content: Content<'a>,
        /// `commentary` or `final_answer`.
        phase: Option<Cow<'a, str>>,
        /// `in_progress`, `completed`, `incomplete`.
        status: Option<Cow<'a, str>>,
    }
}

view! {
    /// A call of a function.
    pub struct FunctionCall<'a> {
        /// The item's id.
        id: Option<Cow<'a, str>>,
        /// The id that the output refers to.
        call_id: Cow<'a, str>,
        /// The function's name.
        name: Cow<'a, str>,
        /// The namespace that the function is in.
        namespace: Option<Cow<'a, str>>,
        /// JSON as the model wrote it, valid or not.
        arguments: JsonStr<'a> = JsonStr::default(),
        /// `in_progress`, `completed`, `incomplete`.
        status: Option<Cow<'a, str>>,
    }
}

view! {
    /// A call of a tool that takes free text.
    pub struct CustomToolCall<'a> {
        /// The item's id.
        id: Option<Cow<'a, str>>,
        /// The id that the output refers to.
        call_id: Cow<'a, str>,
        /// The tool's name.
        name: Cow<'a, str>,
        /// The namespace that the tool is in.
        namespace: Option<Cow<'a, str>>,
        /// The text for the tool.
        input: JsonStr<'a> = JsonStr::default(),
        /// `in_progress`, `completed`, `incomplete`.
        status: Option<Cow<'a, str>>,
    }
}

view! {
    struct CallOutputFields<'a> {
        id: Option<Cow<'a, str>>,
        call_id: Cow<'a, str>,
        output: Output<'a> = Output(Content::EMPTY),
    }
}

/// The output of a function or custom tool.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutput<'a> {
    /// The item's id.
    pub id: Option<Cow<'a, str>>,
    /// The call that it belongs to.
    pub call_id: Cow<'a, str>,
    /// The tool output.
    pub output: Content<'a>,
}

impl<'a> Field<'a> for CallOutput<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        let CallOutputFields { id, call_id, output } = CallOutputFields::read(raw)?;
        Ok(Self { id, call_id, output: output.0 })
    }
}

view! {
    /// Reasoning of the model.
    pub struct Reasoning<'a> {
        /// The item's id.
        id: Option<Cow<'a, str>>,
        /// The summary that clients may show.
        summary: Parts<'a> = Parts(Vec::new()),
        /// The reasoning text, if the model returns it.
        content: Parts<'a> = Parts(Vec::new()),
        /// Encrypted for the model; opaque to the client.
        encrypted_content: Option<JsonStr<'a>>,
    }
}

/// A list of content parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts<'a>(pub Vec<Part<'a>>);

impl<'a> Field<'a> for Parts<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        list(raw, "an array of content parts", Part::read).map(Self)
    }
}

/// A call of a shell, local shell, apply patch, tool search or computer tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientCall<'a> {
    /// The item's id.
    pub id: Option<Cow<'a, str>>,
    /// The id that the output refers to.
    pub call_id: Cow<'a, str>,
    /// `action`, `operation` or `arguments`.
    pub payload: Raw<'a>,
}

/// The output of a shell, local shell, apply patch, tool search or computer tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientCallOutput<'a> {
    /// The call that it belongs to.
    pub call_id: Cow<'a, str>,
    /// `output` or `tools`; null if the tool returned none.
    pub output: Raw<'a>,
    /// `completed`, `failed` and the like.
    pub status: Option<Cow<'a, str>>,
}

view! {
    /// Tools that arrive inside the history.
    pub struct AdditionalTools<'a> {
        /// The tools.
        tools: Tools<'a> = Tools(Vec::new()),
    }
}

/// A list of tools.
#[derive(Debug, Clone, PartialEq)]
pub struct Tools<'a>(pub Vec<Tool<'a>>);

impl<'a> Field<'a> for Tools<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        Tool::list(raw).map(Self)
    }
}

view! {
    /// A reference to an item that is stored on the server.
    pub struct Reference<'a> {
        /// The id of the item.
        id: Cow<'a, str>,
    }
}

view! {
    /// A summary in place of the history before it.
    pub struct Compaction<'a> {
        /// The item's id.
        id: Option<Cow<'a, str>>,
        /// The sealed summary.
        encrypted_content: Option<JsonStr<'a>>,
    }
}

view! {
    /// A call that a server ran.
    pub struct McpCall<'a> {
        /// The item's id.
        id: Cow<'a, str>,
        /// The server of the tool.
        server_label: Cow<'a, str>,
        /// The tool's name at the server.
        name: Cow<'a, str>,
        /// JSON as the model wrote it, valid or not.
        arguments: JsonStr<'a> = JsonStr::default(),
        /// The tool output.
        output: Option<JsonStr<'a>>,
        /// Why the call failed.
        error: Option<Raw<'a>>,
    }
}

view! {
    /// The caller's decision on a call that waits for approval.
    pub struct McpApprovalResponse<'a> {
        /// The item that requested the approval.
        approval_request_id: Cow<'a, str>,
        /// Whether the call may run.
        approve: bool,
        /// The caller's reason.
        reason: Option<Cow<'a, str>>,
    }
}

impl<'a> McpCall<'a> {
    /// Reads the call from an item.
    pub fn of(item: Raw<'a>) -> Result<Self, ShapeError> {
        Self::read(item)
    }
}

impl<'a> McpApprovalResponse<'a> {
    /// Reads the content of an item.
    pub fn of(item: Raw<'a>) -> Result<Self, ShapeError> {
        Self::read(item)
    }
}

impl<'a> Item<'a> {
    /// Reads one item. An error names the path below the item.
    pub fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        object(raw)?;
        let kind: Option<Cow<'a, str>> = match raw.get("type") {
            Some(kind) => Field::field("type", kind)?,
            None => None,
        };
        let Some(kind) = kind else {
            // Most clients omit the type of a message.
            if raw.get("role").is_none() && raw.get("id").is_some() && raw.get("content").is_none() {
                return Ok(Self { raw, kind: ItemKind::Reference(Reference::read(raw)?) });
            }
            return Ok(Self { raw, kind: ItemKind::Message(Message::read(raw)?) });
        };
        let client_call = |tool| client_call(tool, raw).map(|call| ItemKind::ClientCall(tool, call));
        let client_output = |tool| client_output(raw).map(|output| ItemKind::ClientCallOutput(tool, output));
        let kind = match &*kind {
            "message" => ItemKind::Message(Message::read(raw)?),
            "function_call" => ItemKind::FunctionCall(FunctionCall::read(raw)?),
            "function_call_output" => ItemKind::FunctionCallOutput(CallOutput::read(raw)?),
            "custom_tool_call" => ItemKind::CustomToolCall(CustomToolCall::read(raw)?),
            "custom_tool_call_output" => ItemKind::CustomToolCallOutput(CallOutput::read(raw)?),
            "reasoning" => ItemKind::Reasoning(Reasoning::read(raw)?),
            "shell_call" => client_call(ClientTool::Shell)?,
            "local_shell_call" => client_call(ClientTool::LocalShell)?,
            "apply_patch_call" => client_call(ClientTool::ApplyPatch)?,
            "tool_search_call" => client_call(ClientTool::ToolSearch)?,
            "computer_call" => client_call(ClientTool::Computer)?,
            "shell_call_output" => client_output(ClientTool::Shell)?,
            "local_shell_call_output" => client_output(ClientTool::LocalShell)?,
            "apply_patch_call_output" => client_output(ClientTool::ApplyPatch)?,
            "tool_search_output" => client_output(ClientTool::ToolSearch)?,
            "computer_call_output" => client_output(ClientTool::Computer)?,
            "additional_tools" => ItemKind::AdditionalTools(AdditionalTools::read(raw)?),
            "item_reference" => ItemKind::Reference(Reference::read(raw)?),
            "compaction" | "compaction_summary" => ItemKind::Compaction(Compaction::read(raw)?),
            "agent_message" => match Message::read(raw) {
                Ok(message) => ItemKind::AgentMessage(message),
                Err(_) => ItemKind::Other(kind),
            },
            name => match HostedItem::named(name) {
                Some(hosted) => ItemKind::Hosted(hosted),
                None => ItemKind::Other(kind),
            },
        };
        Ok(Self { raw, kind })
    }

    /// Reads an item of a caller. Its role must be known, unlike in stored items and items of upstreams: a message with
    /// the wrong role would mean something else.
    pub(crate) fn from_caller(raw: Raw<'a>) -> Result<Self, ShapeError> {
        let item = Self::read(raw)?;
        if let ItemKind::Message(Message { role: Role::User, .. }) = &item.kind
            && raw.get_str("role").is_none_or(|role| role != Role::User.name())
        {
            return Err(ShapeError::value("role", format!("must be one of `{}`", Role::NAMES.join("`, `"))));
        }
        Ok(item)
    }

    /// The item's id, if it has one.
    pub fn id(&self) -> Option<Cow<'a, str>> {
        self.raw.get_str("id")
    }

    /// An owned copy of the item's text.
    pub fn to_json(&self) -> Json {
        Json::from(self.raw)
    }
}

fn client_call<'a>(tool: ClientTool, raw: Raw<'a>) -> Result<ClientCall<'a>, ShapeError> {
    let id = raw.get_str("id");
    // A tool search that the server ran has no call id, so its own id is used.
    let call_id = raw.get_str("call_id").or_else(|| id.clone()).ok_or_else(|| ShapeError::missing("call_id"))?;
    Ok(ClientCall { id, call_id, payload: raw.get(tool.payload_field()).unwrap_or(Raw::NULL) })
}

fn client_output(raw: Raw<'_>) -> Result<ClientCallOutput<'_>, ShapeError> {
    // The output of a local shell call refers to its call by `id`.
    let call_id = raw.get_str("call_id").or_else(|| raw.get_str("id")).ok_or_else(|| ShapeError::missing("call_id"))?;
    let output = raw.get("output").or_else(|| raw.get("tools")).unwrap_or(Raw::NULL);
    Ok(ClientCallOutput { call_id, output, status: raw.get_str("status") })
}
