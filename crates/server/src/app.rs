//! What every handler can reach.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{auth::Auth, body::BodyLimits, origins::AllowedOrigins, request_memory::RequestMemory, wires::Checks};

/// What the binary joins.
pub struct ServerParts {
    /// What the program does.
    pub app: Arc<amalgam_app::Application>,
    /// Authenticates callers.
    pub auth: Auth,
    /// Which web pages may call.
    pub origins: AllowedOrigins,
}

/// The application behind HTTP.
pub struct App {
    pub(crate) app: Arc<amalgam_app::Application>,
    pub(crate) auth: Auth,
    /// What upstreams said about assistants' models lately.
    pub(crate) checks: Checks,
    /// What requests may hold.
    pub(crate) memory: RequestMemory,
    /// What of it WebSockets may remember.
    pub(crate) remembering: RequestMemory,
    pub(crate) origins: AllowedOrigins,
    ready: AtomicBool,
}

impl Deref for App {
    type Target = amalgam_app::Application;

    fn deref(&self) -> &amalgam_app::Application {
        &self.app
    }
}

impl App {
    /// Joins the parts.
    pub fn new(ServerParts { app, auth, origins }: ServerParts) -> Self {
        let memory = RequestMemory::new(app.limits.request_bytes_total);
        Self {
            auth,
            checks: Checks::default(),
            remembering: memory.part(app.limits.remembered_bytes),
            memory,
            origins,
            ready: AtomicBool::new(true),
            app,
        }
    }

    /// The application behind HTTP.
    pub fn application(&self) -> &Arc<amalgam_app::Application> {
        &self.app
    }

    /// How large a body with images and files may be, and how slowly it may come.
    pub(crate) fn whole_body(&self) -> BodyLimits {
        BodyLimits { bytes: self.limits.body_bytes + self.limits.media_bytes, ..self.text_body() }
    }

    /// The same for a body without images and files.
    pub(crate) fn text_body(&self) -> BodyLimits {
        let limits = &self.limits;
        BodyLimits { bytes: limits.body_bytes, text_bytes: limits.body_bytes, pause: limits.body_pause }
    }

    /// Tells load balancers to send no more work.
    pub fn drain(&self) {
        self.ready.store(false, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}
