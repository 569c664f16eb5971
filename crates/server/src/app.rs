//! What every handler can reach.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use amalgam_core::{Catalog, Clock, Retrieval, Seal, Store, Toolbox};
use amalgam_engine::{Engine, QueueLimits};

use crate::{
    auth::Auth,
    body::BodyLimits,
    origins::AllowedOrigins,
    request_memory::RequestMemory,
    wires::{AssistantSettings, Checks, ExecuteSettings, Lines},
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
    /// How long a WebSocket stays open on which nothing is asked.
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
    /// Of those, bytes of what all sockets together remember.
    pub remembered_bytes: usize,
    /// Turns that wait for a process.
    pub queue: QueueLimits,
}

impl Limits {
    /// How large a body with images and files may be, and how slowly it may come.
    pub(crate) fn whole_body(&self) -> BodyLimits {
        BodyLimits { bytes: self.body_bytes + self.media_bytes, ..self.text_body() }
    }

    /// The same for a body without images and files.
    pub(crate) fn text_body(&self) -> BodyLimits {
        BodyLimits { bytes: self.body_bytes, text_bytes: self.body_bytes, pause: self.body_pause }
    }
}

/// What the binary joins.
pub struct Parts {
    /// Runs turns.
    pub engine: Engine,
    /// Which names callers may ask for.
    pub catalog: Arc<dyn Catalog>,
    /// Tells callers apart.
    pub auth: Auth,
    /// Keeps what is kept.
    pub store: Arc<dyn Store>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Seals what leaves our hands and comes back.
    pub seal: Arc<dyn Seal>,
    /// Where the server's own tools come from.
    pub toolbox: Arc<dyn Toolbox>,
    /// Looks things up in what a tenant knows.
    pub knowledge: Arc<dyn Retrieval>,
    /// What is set about every tenant's assistant.
    pub assistant: AssistantSettings,
    /// What is set about the strict contract.
    pub execute: ExecuteSettings,
    /// Which web pages may call.
    pub origins: AllowedOrigins,
    /// The bounds of what is taken from outside.
    pub limits: Limits,
}

/// The server's parts.
pub struct App {
    pub(crate) engine: Engine,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) auth: Auth,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seal: Arc<dyn Seal>,
    pub(crate) toolbox: Arc<dyn Toolbox>,
    pub(crate) knowledge: Arc<dyn Retrieval>,
    pub(crate) assistant: AssistantSettings,
    pub(crate) execute: ExecuteSettings,
    /// What upstreams said about assistants' models lately.
    pub(crate) checks: Checks,
    /// Who waits here to speak to an assistant.
    pub(crate) lines: Lines,
    /// What requests may hold.
    pub(crate) memory: RequestMemory,
    /// What of it sockets may remember.
    pub(crate) remembering: RequestMemory,
    pub(crate) origins: AllowedOrigins,
    pub(crate) limits: Limits,
    ready: AtomicBool,
}

impl App {
    /// Joins the parts.
    pub fn new(parts: Parts) -> Self {
        let Parts {
            engine,
            catalog,
            auth,
            store,
            clock,
            seal,
            toolbox,
            knowledge,
            assistant,
            execute,
            origins,
            limits,
        } = parts;
        let memory = RequestMemory::new(limits.request_bytes_total);
        Self {
            engine,
            catalog,
            auth,
            store,
            clock,
            seal,
            toolbox,
            knowledge,
            assistant,
            execute,
            checks: Checks::default(),
            lines: Lines::default(),
            remembering: memory.part(limits.remembered_bytes),
            memory,
            origins,
            limits,
            ready: AtomicBool::new(true),
        }
    }

    /// Says to load balancers that no more work should come.
    pub fn drain(&self) {
        self.ready.store(false, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}
