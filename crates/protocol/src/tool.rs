//! The tools of a request, and its tool choice.

use std::borrow::Cow;

use crate::{
    item::ClientTool,
    json::{JsonStr, Raw, Shape},
    shape::{Field, Present, ShapeError, list, list_of_present, object, shape_keep, shape_name, shape_take, view},
};

/// One tool, with the text that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool<'a> {
    /// The tool as it was written.
    pub raw: Raw<'a>,
    /// Its kind.
    pub kind: ToolKind<'a>,
}

/// The kinds of tools.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolKind<'a> {
    /// `function`
    Function(FunctionTool<'a>),
    /// `custom`
    Custom(CustomTool<'a>),
    /// `namespace`
    Namespace(NamespaceTool<'a>),
    /// `shell`, `local_shell`, `apply_patch`, `tool_search`, `computer…`: run by the client.
    Client(ClientTool, ClientToolSettings<'a>),
    /// A server-run tool, by its type: `mcp`, `web_search`, `file_search` and others.
    Hosted(HostedTool, Cow<'a, str>),
    /// An unknown kind.
    Other(Cow<'a, str>),
}

/// Server-run tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostedTool {
    /// `mcp`
    Mcp,
    /// `web_search` and its previews
    WebSearch,
    /// `file_search`
    FileSearch,
    /// `code_interpreter`
    CodeInterpreter,
    /// `image_generation`
    ImageGeneration,
    /// `programmatic_tool_calling`
    ProgrammaticToolCalling,
}

view! {
    /// A function with a JSON Schema for its arguments.
    pub struct FunctionTool<'a> {
        /// The name that the model calls.
        name: Cow<'a, str>,
        /// Its description for the model.
        description: Option<JsonStr<'a>>,
        /// The JSON Schema.
        parameters: Option<Raw<'a>>,
        /// Whether arguments must follow the schema exactly.
        strict: Option<bool>,
        /// Whether the tool is hidden until a search finds it.
        defer_loading: Option<bool>,
    }
}

view! {
    /// A tool that takes free text.
    pub struct CustomTool<'a> {
        /// The name that the model calls.
        name: Cow<'a, str>,
        /// Its description for the model.
        description: Option<JsonStr<'a>>,
        /// The grammar of its input: `{"type": "grammar", "syntax", "definition"}` or `{"type": "text"}`.
        format: Option<Raw<'a>>,
    }
}

view! {
    /// A group of tools under one name.
    pub struct NamespaceTool<'a> {
        /// The group's name.
        name: Cow<'a, str>,
        /// The description of the group for the model.
        description: Option<JsonStr<'a>>,
        /// Functions and custom tools.
        tools: NestedTools<'a> = NestedTools(Vec::new()),
    }
}

view! {
    /// Tools of an MCP server.
    pub struct McpTool<'a> {
        /// The server's name in this request.
        server_label: Cow<'a, str>,
        /// Its address.
        server_url: Option<Cow<'a, str>>,
        /// A connector of the upstream, in place of a server.
        connector_id: Option<Cow<'a, str>>,
        /// Its description.
        server_description: Option<Cow<'a, str>>,
        /// Its credential.
        authorization: Option<Cow<'a, str>>,
        /// Its headers: an object of strings.
        headers: Option<Raw<'a>>,
        /// A list of names, or `{"tool_names", "read_only"}`.
        allowed_tools: Option<Raw<'a>>,
        /// `"always"`, `"never"`, or `{"always", "never"}`.
        require_approval: Option<Raw<'a>>,
    }
}

view! {
    /// A search over collections of documents.
    pub struct FileSearchTool<'a> {
        /// The collections.
        vector_store_ids: StoreIds<'a> = StoreIds(Vec::new()),
        /// The maximum number of results.
        max_num_results: Option<u64>,
        /// A comparison, or several of them with `and` or `or`.
        filters: Option<Raw<'a>>,
        /// `{"ranker", "score_threshold", "hybrid_search"}`
        ranking_options: Option<Raw<'a>>,
    }
}

impl<'a> FileSearchTool<'a> {
    /// Reads a tool of type `file_search`.
    pub fn of(tool: Raw<'a>) -> Result<Self, ShapeError> {
        Self::read(tool)
    }
}

/// Ids of collections.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreIds<'a>(pub Vec<Cow<'a, str>>);

impl<'a> Field<'a> for StoreIds<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        list(raw, "an array of strings", Field::read).map(Self)
    }
}

impl<'a> McpTool<'a> {
    /// Reads a tool of type `mcp`.
    pub fn of(tool: Raw<'a>) -> Result<Self, ShapeError> {
        Self::read(tool)
    }
}

/// The tools of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct NestedTools<'a>(pub Vec<Tool<'a>>);

impl<'a> Field<'a> for NestedTools<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        Tool::list(raw).map(Self)
    }
}

view! {
    /// The settings of a client-run tool.
    pub struct ClientToolSettings<'a> {
        /// `client` or `server`, for a tool search.
        execution: Option<Cow<'a, str>>,
        /// Its description for the model.
        description: Option<JsonStr<'a>>,
        /// The JSON Schema of its arguments, for a tool search.
        parameters: Option<Raw<'a>>,
    }
}

impl<'a> Tool<'a> {
    /// Reads a list of tools; null entries are skipped.
    pub fn list(raw: Raw<'a>) -> Result<Vec<Self>, ShapeError> {
        Self::present(raw).map(|present| present.list)
    }

    pub(crate) fn present(raw: Raw<'a>) -> Result<Present<Self>, ShapeError> {
        list_of_present(raw, "an array of tools", Self::read)
    }

    /// Reads one tool.
    pub fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        object(raw)?;
        let kind: Cow<'a, str> = match raw.get("type") {
            Some(kind) => Field::field("type", kind)?,
            None => return Err(ShapeError::missing("type")),
        };
        let client = |tool| ClientToolSettings::read(raw).map(|settings| ToolKind::Client(tool, settings));
        let kind = match &*kind {
            "function" => match raw.get("function") {
                // The format of Chat Completions, nested one level deeper, is common enough to be supported.
                Some(nested) if nested.shape() == Shape::Object && raw.get("name").is_none() => {
                    ToolKind::Function(FunctionTool::field("function", nested)?)
                }
                _ => ToolKind::Function(FunctionTool::read(raw)?),
            },
            "custom" => ToolKind::Custom(CustomTool::read(raw)?),
            "namespace" => ToolKind::Namespace(NamespaceTool::read(raw)?),
            "shell" => client(ClientTool::Shell)?,
            "local_shell" => client(ClientTool::LocalShell)?,
            "apply_patch" => client(ClientTool::ApplyPatch)?,
            "tool_search" => client(ClientTool::ToolSearch)?,
            "computer" | "computer_use_preview" => client(ClientTool::Computer)?,
            name => match hosted(name) {
                Some(hosted) => ToolKind::Hosted(hosted, kind),
                None => ToolKind::Other(kind),
            },
        };
        Ok(Self { raw, kind })
    }
}

fn hosted(name: &str) -> Option<HostedTool> {
    Some(match name {
        "mcp" => HostedTool::Mcp,
        "file_search" => HostedTool::FileSearch,
        "code_interpreter" => HostedTool::CodeInterpreter,
        "image_generation" | "image_gen" => HostedTool::ImageGeneration,
        "programmatic_tool_calling" => HostedTool::ProgrammaticToolCalling,
        name if name.starts_with("web_search") => HostedTool::WebSearch,
        _ => return None,
    })
}

/// The tool choice of a request, in nine forms.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolChoice<'a> {
    /// `"none"`
    None,
    /// `"auto"`, the default.
    Auto,
    /// `"required"`
    Required,
    /// `{"type": "function", "name"}`, and `{"type": "tool", "name"}`, which some clients send.
    Function(Cow<'a, str>, Raw<'a>),
    /// `{"type": "custom", "name"}`
    Custom(Cow<'a, str>, Raw<'a>),
    /// `{"type": "mcp", "server_label", "name"}`
    Mcp {
        /// The server.
        server_label: Cow<'a, str>,
        /// One of its tools.
        name: Option<Cow<'a, str>>,
        /// The choice as it was written.
        raw: Raw<'a>,
    },
    /// `{"type": "allowed_tools", "mode", "tools"}`
    Allowed(AllowedTools<'a>),
    /// `{"type": "shell"}`, `{"type": "apply_patch"}`, …
    Client(ClientTool, Raw<'a>),
    /// `{"type": "web_search"}` and other server-run tools, or an unknown type.
    Hosted(Cow<'a, str>, Raw<'a>),
}

/// The only tools that may be called.
#[derive(Debug, Clone, PartialEq)]
pub struct AllowedTools<'a> {
    /// Whether one of them must be called.
    pub required: bool,
    /// Each in the form of a `tool_choice`.
    pub tools: Vec<ToolChoice<'a>>,
}

impl<'a> ToolChoice<'a> {
    /// Reads any of the nine forms.
    pub fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        if let Some(word) = raw.as_str() {
            return match word.escaped() {
                "none" => Ok(Self::None),
                "auto" => Ok(Self::Auto),
                "required" | "any" => Ok(Self::Required),
                other => Err(ShapeError::value(
                    "",
                    format!("must be `none`, `auto`, `required` or an object, but is `{other}`"),
                )),
            };
        }
        if raw.shape() != Shape::Object {
            return Err(ShapeError::expected("", "a string or an object", raw));
        }
        let kind: Cow<'a, str> = match raw.get("type") {
            Some(kind) => Field::field("type", kind)?,
            None => return Err(ShapeError::missing("type")),
        };
        let name = || match raw.get("name").or_else(|| raw.get("function").and_then(|nested| nested.get("name"))) {
            Some(name) => Field::field("name", name),
            None => Err(ShapeError::missing("name")),
        };
        Ok(match &*kind {
            "function" | "tool" => Self::Function(name()?, raw),
            "custom" => Self::Custom(name()?, raw),
            "mcp" => Self::Mcp {
                server_label: raw.get_str("server_label").ok_or_else(|| ShapeError::missing("server_label"))?,
                name: raw.get_str("name"),
                raw,
            },
            "allowed_tools" => Self::Allowed(allowed(raw)?),
            "none" => Self::None,
            "auto" => Self::Auto,
            "required" | "any" => Self::Required,
            "shell" => Self::Client(ClientTool::Shell, raw),
            "local_shell" => Self::Client(ClientTool::LocalShell, raw),
            "apply_patch" => Self::Client(ClientTool::ApplyPatch, raw),
            "tool_search" => Self::Client(ClientTool::ToolSearch, raw),
            "computer" | "computer_use" | "computer_use_preview" => Self::Client(ClientTool::Computer, raw),
            _ => Self::Hosted(kind, raw),
        })
    }
}

fn allowed<'a>(raw: Raw<'a>) -> Result<AllowedTools<'a>, ShapeError> {
    let tools = raw.get("tools").ok_or_else(|| ShapeError::missing("tools"))?;
    let tools = list(tools, "an array of tool choices", ToolChoice::read).map_err(|error| error.under("tools"))?;
    let mode = match raw.get("mode") {
        Some(mode) => Option::<JsonStr<'a>>::field("mode", mode)?,
        None => None,
    };
    let required = match mode.map(JsonStr::escaped) {
        None | Some("auto") => false,
        Some("required") => true,
        Some(other) => {
            return Err(ShapeError::value("mode", format!("must be `auto` or `required`, but is `{other}`")));
        }
    };
    Ok(AllowedTools { required, tools })
}
