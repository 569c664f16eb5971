//! The Responses API as plain data: requests, items, events, the response object, and SSE frames.

mod content;
mod conversation;
mod error;
mod event;
mod event_batch;
mod item;
mod json;
mod messages_fields;
mod parameters;
mod request;
mod response;
mod shape;
mod sse;
mod tool;
mod usage;

pub use content::{Content, File, Image, ImageUrl, Part, PartKind, TextKind};
pub use conversation::{AddItems, CreateConversation, UpdateConversation};
pub use error::ErrorObject;
pub use event::{Event, EventKind};
pub use event_batch::EventBatch;
pub use item::{
    AdditionalTools, CallOutput, ClientCall, ClientCallOutput, ClientTool, Compaction, CustomToolCall, FunctionCall,
    HostedItem, Item, ItemKind, McpApprovalResponse, McpCall, Message, Parts, Reasoning, Reference, Role, Tools,
};
pub use json::{DEFAULT_DEPTH, Json, JsonStr, Literal, Raw, Shape, SyntaxError, ValueIndex, Writer};
pub use messages_fields::{ANTHROPIC, MESSAGES_BLOCK};
pub use parameters::{RequestError, ResponseParameters, item_path};
pub use request::{CreateResponse, Input, JsonSchemaFormat, ReasoningSettings, Text, TextFormat};
pub use response::{Effective, Provenance, ResponseSettings, Snapshot, Status};
pub use shape::{Nulls, ShapeError, ShapeFault};
pub use sse::{DONE, Frame, Overlong, Reader};
pub use tool::{
    AllowedTools, ClientToolSettings, CustomTool, FileSearchTool, FunctionTool, HostedTool, McpTool, NamespaceTool,
    NestedTools, StoreIds, Tool, ToolChoice, ToolKind,
};
pub use usage::{ReportedUsage, Usage};
