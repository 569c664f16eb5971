//! The parts of a running server that a reload of the configuration replaces.

use std::sync::Arc;

use amalgam_app::Application;
use amalgam_core::{BoxFuture, EmbeddedTexts, Embedder, Fault};
use amalgam_engine::{Admission, AdmissionSettings};
use amalgam_models::ModelNames;
use amalgam_server::{Auth, CurrentApp, RequestLog};
use arc_swap::ArcSwap;

use crate::{telemetry::ProcessTelemetry, tenancy::ConfiguredAccess};

/// What a new configuration replaces besides the application itself.
pub(crate) struct LiveParts {
    pub(crate) auth: Auth,
    pub(crate) admission: Admission,
    pub(crate) embedder: Arc<CurrentModels>,
    pub(crate) telemetry: ProcessTelemetry,
    /// The lines of requests.
    pub(crate) log: Arc<RequestLog>,
    pub(crate) server: CurrentApp,
}

impl LiveParts {
    /// Puts the parts of a new configuration into force.
    pub(crate) fn replace(
        &self,
        access: &ConfiguredAccess,
        names: Arc<ModelNames>,
        application: &Arc<Application>,
        admission: AdmissionSettings,
    ) {
        self.embedder.0.store(names);
        self.admission.change(admission);
        self.server.replace(Arc::clone(application));
        // Last: a new key is accepted when the configuration that it belongs to is in force.
        self.auth.configure(&access.configured, access.open.as_ref());
    }
}

/// The models in force, for the search of knowledge, which outlives a configuration.
pub(crate) struct CurrentModels(ArcSwap<ModelNames>);

impl CurrentModels {
    pub(crate) fn new(names: Arc<ModelNames>) -> Self {
        Self(ArcSwap::new(names))
    }
}

impl Embedder for CurrentModels {
    fn embed<'a>(&'a self, model: &'a str, texts: &'a [&'a str]) -> BoxFuture<'a, Result<EmbeddedTexts, Fault>> {
        let names = self.0.load_full();
        Box::pin(async move { names.embed(model, texts).await })
    }
}
