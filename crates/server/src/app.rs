//! The state that every handler can access.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use amalgam_administration::reload::ReloadRequests;
use amalgam_oidc::OidcProvider;
use arc_swap::ArcSwap;
use axum::extract::FromRef;

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
    /// Reloads the configuration.
    pub reload: ReloadRequests,
    /// Writes a line for each request, and counts.
    pub log: Arc<RequestLog>,
    /// Signs users of the console in.
    pub oidc: Option<Arc<OidcProvider>>,
}

/// The application with its HTTP parts. A request keeps the one that it started with.
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
    pub(crate) reload: ReloadRequests,
    pub(crate) log: Arc<RequestLog>,
    pub(crate) oidc: Option<Arc<OidcProvider>>,
    /// Shared with the versions before and after a reload.
    ready: Arc<AtomicBool>,
}

impl Deref for App {
    type Target = amalgam_app::Application;

    fn deref(&self) -> &amalgam_app::Application {
        &self.app
    }
}

impl App {
    /// Assembles the parts.
    pub fn new(ServerParts { app, auth, origins, reload, log, oidc }: ServerParts) -> Self {
        let memory = RequestMemory::new(app.limits.request_bytes_total);
        Self {
            auth,
            checks: Checks::default(),
            connection_memory: memory.part(app.limits.remembered_bytes),
            memory,
            origins,
            reload,
            log,
            oidc,
            ready: Arc::new(AtomicBool::new(true)),
            app,
        }
    }

    /// The same server with another application. Recent results of model checks are forgotten.
    fn with_application(&self, app: Arc<amalgam_app::Application>) -> Self {
        Self {
            app,
            auth: self.auth.clone(),
            checks: Checks::default(),
            memory: self.memory.clone(),
            connection_memory: self.connection_memory.clone(),
            origins: self.origins.clone(),
            reload: self.reload.clone(),
            log: Arc::clone(&self.log),
            oidc: self.oidc.clone(),
            ready: Arc::clone(&self.ready),
        }
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

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}

/// The application in force, which a reload replaces. Cheap to clone.
#[derive(Clone)]
pub struct CurrentApp(Arc<ArcSwap<App>>);

impl CurrentApp {
    /// Starts with this application.
    pub fn new(app: Arc<App>) -> Self {
        Self(Arc::new(ArcSwap::new(app)))
    }

    /// The application in force.
    pub(crate) fn load(&self) -> Arc<App> {
        self.0.load_full()
    }

    /// Replaces the application for new requests.
    pub fn replace(&self, application: Arc<amalgam_app::Application>) {
        let next = self.0.load().with_application(application);
        self.0.store(Arc::new(next));
    }

    /// Reports "not ready" from now on, so that load balancers send no more requests.
    pub fn drain(&self) {
        self.0.load().ready.store(false, Ordering::Release);
    }
}

impl From<Arc<App>> for CurrentApp {
    fn from(app: Arc<App>) -> Self {
        Self::new(app)
    }
}

impl FromRef<CurrentApp> for Arc<App> {
    fn from_ref(current: &CurrentApp) -> Self {
        current.load()
    }
}
