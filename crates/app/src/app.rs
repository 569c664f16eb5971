//! The application's parts and limits.

use std::{sync::Arc, time::Duration};

use amalgam_core::{Catalog, Clock, Embedder, EmbeddingUpstreams, Retrieval, Seal, Store, ToolProvider, WebhookSender};
use amalgam_engine::{Engine, QueueLimits};

use crate::{
    ReadConfigs, TenantConfigs,
    assistant::{AssistantSettings, SessionQueues},
    execute::ExecuteSettings,
};

/// The limits of requests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a body, without images and files.
    pub body_bytes: usize,
    /// Bytes of images and files in a body.
    pub media_bytes: usize,
    /// The longest pause inside a body.
    pub body_pause: Duration,
    /// How long an idle WebSocket stays open.
    pub websocket_idle: Duration,
    /// Nesting levels of JSON.
    pub json_depth: usize,
    /// Items of an input.
    pub input_items: usize,
    /// Content parts of an input, in all items together.
    pub content_parts: usize,
    /// Tools of a request; those in namespaces count one by one.
    pub tools: usize,
    /// Values in one JSON Schema.
    pub schema_nodes: usize,
    /// Bytes of one text.
    pub string_bytes: usize,
    /// Bytes of one uploaded file.
    pub file_bytes: usize,
    /// Bytes of all uploaded files of one tenant.
    pub files_bytes_per_tenant: u64,
    /// Bytes of memory that all requests use together.
    pub request_bytes_total: usize,
    /// The limit of bytes that all WebSockets together remember; part of `request_bytes_total`.
    pub remembered_bytes: usize,
    /// Background turns that wait for a process.
    pub queue: QueueLimits,
}

/// The application: what the program does, without HTTP. The binary assembles it, and again for a new configuration; clones
/// share everything that runs.
#[derive(Clone)]
pub struct Application {
    /// Runs turns.
    pub engine: Engine,
    /// Resolves model names.
    pub catalog: Arc<dyn Catalog>,
    /// Persistence.
    pub store: Arc<dyn Store>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Seals values that clients store and send back.
    pub seal: Arc<dyn Seal>,
    /// Provides the server-run tools.
    pub toolbox: Arc<dyn ToolProvider>,
    /// Sends webhooks.
    pub webhook_sender: Arc<dyn WebhookSender>,
    /// Embeds texts of callers.
    pub embeddings: Arc<dyn EmbeddingUpstreams>,
    /// Searches the knowledge of a tenant.
    pub knowledge: Arc<dyn Retrieval>,
    /// Computes embeddings with the models in force.
    pub embedder: Arc<dyn Embedder>,
    /// The installation's settings of the tenant assistant.
    pub assistant: AssistantSettings,
    /// The installation's settings of the strict contract.
    pub execute: ExecuteSettings,
    /// The limits of requests.
    pub limits: Limits,
    /// The turns of this process that wait in a session queue.
    pub session_queues: SessionQueues,
    /// The settings of tenants as they were read last.
    pub read_configs: ReadConfigs,
}

impl Application {
    /// The settings of tenants.
    pub fn tenant_configs(&self) -> TenantConfigs<'_> {
        TenantConfigs { store: &*self.store, settings: &self.assistant.settings, now_ms: self.clock.now_ms() }
    }
}
