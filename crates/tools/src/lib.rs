//! Tool kinds, the tool registry, and guarded egress to addresses that callers name.

mod builtin;
mod catalog;
mod egress;
mod file_search;
mod headers;
mod http;
mod knowledge;
mod mcp;
mod registry;
mod secrets;
mod text;
mod validate;

pub use self::http::{HttpSettings, HttpTool};
pub use builtin::{Argument, Arguments, Builtin};
pub use catalog::{CoursePorts, Ports, builtins};
pub use egress::{Allowed, AllowedError, Egress, EgressConfig, EgressError, EgressLimits, Resolve, SystemResolver};
pub use headers::HeaderText;
pub use knowledge::KnowledgePorts;
pub use mcp::{ListedTool, McpProcess, McpServer, McpSettings, find_program};
pub use registry::{OperatorServer, ToolRegistry, ToolRegistryParts, reseal_settings};
pub use validate::{Schema, Schemas, check_name};
