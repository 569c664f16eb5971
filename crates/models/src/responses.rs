//! Responses upstreams: OpenAI and every other server with this API.

mod agn003;
mod convert;
mod decode;
mod failure;
mod items;
mod open;

use std::sync::Arc;

use amalgam_core::{
    BoxFuture, Fault, Model, ModelError, ModelRequest, ModelStream, PreparedRequest, Seal, TokenCount,
    UpstreamRetention,
};
use amalgam_tokens::{TokenCalibration, count_prompt, count_text};

use crate::{
    estimate, recovery,
    settings::{Dialect, UpstreamKind, UpstreamSettings},
    transport::Transport,
};

use self::decode::Decoder;

const PATH: &str = "/responses";

/// A Responses upstream.
pub struct Responses {
    name: String,
    dialect: Dialect,
    keeps_state: bool,
    fetch_images: bool,
    history_recovery: bool,
    transport: Transport,
    seal: Arc<dyn Seal>,
    calibration: Arc<TokenCalibration>,
}

impl Responses {
    /// Prepares one upstream; connects to nothing yet.
    pub fn new(settings: UpstreamSettings, seal: Arc<dyn Seal>) -> Result<Self, Fault> {
        let UpstreamKind::Responses { dialect, keeps_state } = settings.kind else {
            return Err(Fault::internal(format_args!("upstream `{}` is not of kind responses", settings.name)));
        };
        Ok(Self {
            transport: Transport::new(&settings)?,
            name: settings.name,
            dialect,
            keeps_state,
            fetch_images: settings.fetch_images,
            history_recovery: settings.history_recovery,
            seal,
            calibration: Arc::default(),
        })
    }
}

impl Model for Responses {
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault> {
        Ok(match self.dialect {
            Dialect::Standard => convert::convert(request, &self.name, &*self.seal),
            Dialect::Agn003 => agn003::convert(request),
        })
    }

    fn ask<'a>(&'a self, prepared: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        let decoder = move || Decoder::new(&self.name, Arc::clone(&self.seal), prepared.answer_context.clone());
        Box::pin(async move {
            let stream = self.transport.ask(PATH, &[], prepared, decoder).await?;
            Ok(estimate::with_usage(stream, prepared, &self.calibration))
        })
    }

    fn count(&self, prepared: &PreparedRequest) -> TokenCount {
        self.calibration.prompt(&prepared.answer_context.model, count_prompt(&prepared.body))
    }

    fn count_text(&self, model: &str, text: &str) -> u64 {
        self.calibration.text(model, count_text(text))
    }

    fn missing_key(&self) -> Option<&str> {
        self.transport.missing_key()
    }

    fn is_resting(&self) -> bool {
        self.transport.is_resting()
    }

    fn identify<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<String, ModelError>> {
        Box::pin(self.transport.identify(name, &[]))
    }

    fn retention(&self) -> UpstreamRetention {
        match (self.keeps_state, self.dialect) {
            (false, _) => UpstreamRetention::Nothing,
            (true, Dialect::Standard) => UpstreamRetention::Items,
            // With AGN-003 the instructions are sent once, at the beginning.
            (true, Dialect::Agn003) => UpstreamRetention::Everything,
        }
    }

    fn wants_image_bytes(&self) -> bool {
        self.fetch_images
    }

    fn recover(&self, request: &ModelRequest<'_>, error: &ModelError) -> Option<Result<PreparedRequest, Fault>> {
        recovery::recover(self.history_recovery, request, error, |request| self.prepare(request))
    }
}
