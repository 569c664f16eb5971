//! The state that every handler can access.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    auth::Auth, body::BodyLimits, origins::AllowedOrigins, request_log::RequestLog, request_memory::RequestMemory,
    wires::Checks,
};

/// The parts that the binary assembles.
pub struct ServerParts {
    /// The application.
    pub app: Arc<amalgam_app::Application>,
    /// Authenticates callers.
    pub auth: Auth,
    /// The origins whose pages may call the server.
    pub origins: AllowedOrigins,
    /// Writes a line for each request, and counts.
    pub log: Arc<RequestLog>,
}

/// The application with its HTTP parts.
pub struct App {
    pub(crate) app: Arc<amalgam_app::Application>,
    pub(crate) auth: Auth,
    /// Recent results of model checks for the assistants' health route.
    pub(crate) checks: Checks,
    /// The memory budget of requests.
    pub(crate) memory: RequestMemory,
    /// The part of the budget for responses that WebSockets remember.
    pub(crate) connection_memory: RequestMemory,
    pub(crate) origins: AllowedOrigins,
    pub(crate) log: Arc<RequestLog>,
    ready: AtomicBool,
}

impl Deref for App {
    type Target = amalgam_app::Application;

    fn deref(&self) -> &amalgam_app::Application {
        &self.app
    }
}

impl App {
    /// Assembles the parts.
    pub fn new(ServerParts { app, auth, origins, log }: ServerParts) -> Self {
        let memory = RequestMemory::new(app.limits.request_bytes_total);
        Self {
            auth,
            checks: Checks::default(),
            connection_memory: memory.part(app.limits.remembered_bytes),
            memory,
            origins,
            log,
            ready: AtomicBool::new(true),
            app,
        }
    }

    /// The application.
    pub fn application(&self) -> &Arc<amalgam_app::Application> {
        &self.app
    }

    /// The limits for a body with images and files.
    pub(crate) fn whole_body(&self) -> BodyLimits {
        BodyLimits { bytes: self.limits.body_bytes + self.limits.media_bytes, ..self.text_body() }
    }

    /// The limits for a body without images and files.
    pub(crate) fn text_body(&self) -> BodyLimits {
        let limits = &self.limits;
        BodyLimits { bytes: limits.body_bytes, text_bytes: limits.body_bytes, pause: limits.body_pause }
    }

    /// Reports "not ready" from now on, so that load balancers send no more requests.
    pub fn drain(&self) {
        self.ready.store(false, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}
