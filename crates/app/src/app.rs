//! What everything that the program does can reach.

use std::{sync::Arc, time::Duration};

use amalgam_core::{Catalog, Clock, Retrieval, Seal, Store, ToolProvider};
use amalgam_engine::{Engine, QueueLimits};

use crate::{
    assistant::{AssistantSettings, SessionQueues},
    execute::ExecuteSettings,
};

/// The bounds of what is taken from outside.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a body, images and files apart.
    pub body_bytes: usize,
    /// Bytes of images and files in a body.
    pub media_bytes: usize,
    /// The longest pause inside a body.
    pub body_pause: Duration,
    /// How long a WebSocket stays open on which nothing is requested.
    pub websocket_idle: Duration,
    /// Levels of JSON.
    pub json_depth: usize,
    /// Items of an input.
    pub input_items: usize,
    /// Parts of all contents of an input.
    pub content_parts: usize,
    /// Tools of a request, those in namespaces counted one by one.
    pub tools: usize,
    /// Values in one JSON Schema.
    pub schema_nodes: usize,
    /// Bytes of one text.
    pub string_bytes: usize,
    /// Bytes of one uploaded file.
    pub file_bytes: usize,
    /// Bytes of all uploaded files of one tenant.
    pub files_bytes_per_tenant: u64,
    /// Bytes of everything that requests hold together.
    pub request_bytes_total: usize,
    /// Of those, bytes of what all WebSockets together remember.
    pub remembered_bytes: usize,
    /// Background turns that wait for a process.
    pub queue: QueueLimits,
}

/// The application: everything that the program does, without a wire. The binary joins it.
pub struct Application {
    /// Runs turns.
    pub engine: Engine,
    /// Resolves model names.
    pub catalog: Arc<dyn Catalog>,
    /// Persistence.
    pub store: Arc<dyn Store>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Seals what leaves the server and comes back.
    pub seal: Arc<dyn Seal>,
    /// Where the server's own tools come from.
    pub toolbox: Arc<dyn ToolProvider>,
    /// Searches the knowledge of a tenant.
    pub knowledge: Arc<dyn Retrieval>,
    /// The installation's settings of the tenant assistant.
    pub assistant: AssistantSettings,
    /// The installation's settings of the strict contract.
    pub execute: ExecuteSettings,
    /// The bounds of what is taken from outside.
    pub limits: Limits,
    /// The turns of this process that wait for their session.
    pub session_queues: SessionQueues,
}
