//! Tool kinds, and the one way out to addresses that callers name.

mod builtin;
mod catalog;
mod egress;
mod http;
mod mcp;
mod secrets;
mod text;
mod validate;

pub use self::http::{HeaderText, HttpSettings, HttpTool};
pub use builtin::{Argument, Arguments, Builtin};
pub use catalog::builtins;
pub use egress::{Allowed, AllowedError, Egress, EgressConfig, EgressError, Limits, Resolve, SystemResolver};
pub use mcp::{ListedTool, McpProcess, McpServer, McpSettings};
pub use validate::{Schema, Schemas, check_name};
