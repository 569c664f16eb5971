//! The Anthropic Messages API as a model.

mod answer;
mod block;
mod content;
mod convert;
mod decode;
mod messages;
mod native;
mod thinking;

use std::sync::Arc;

use amalgam_core::{BoxFuture, Fault, Model, ModelError, ModelRequest, ModelStream, PreparedRequest, Seal, TokenCount};
use amalgam_tokens::{TokenCalibration, count_prompt, count_text};
use http::{HeaderName, HeaderValue};
use secrecy::ExposeSecret;

use crate::{
    estimate, recovery,
    settings::{Key, StructuredOutput, UpstreamKind, UpstreamSettings},
    transport::Transport,
};

use self::decode::Decoder;

const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// An upstream with the Messages API.
pub struct Anthropic {
    name: String,
    transport: Transport,
    headers: Vec<(HeaderName, HeaderValue)>,
    max_output_tokens: u64,
    structured_output: StructuredOutput,
    fetches_images: bool,
    recovers_history: bool,
    seal: Arc<dyn Seal>,
    calibration: Arc<TokenCalibration>,
}

impl Anthropic {
    /// Prepares one upstream; `seal` seals thinking blocks that the client carries.
    pub fn new(settings: UpstreamSettings, seal: Arc<dyn Seal>) -> Result<Self, Fault> {
        let UpstreamKind::Anthropic { version, max_output_tokens, structured_output } = &settings.kind else {
            return Err(Fault::internal(format_args!("upstream `{}` does not speak the Messages API", settings.name)));
        };
        let unsendable = |what| Fault::internal(format_args!("upstream `{}`: {what} cannot be sent", settings.name));
        let version = HeaderValue::try_from(version).map_err(|_| unsendable("anthropic_version"))?;
        let mut headers = vec![(VERSION, version)];
        if let Key::Given(key) = &settings.key {
            let mut value = HeaderValue::try_from(key.expose_secret()).map_err(|_| unsendable("the key"))?;
            value.set_sensitive(true);
            headers.push((API_KEY, value));
        }
        Ok(Self {
            transport: Transport::new(&settings)?,
            headers,
            max_output_tokens: *max_output_tokens,
            structured_output: *structured_output,
            fetches_images: settings.fetch_images,
            recovers_history: settings.history_recovery,
            seal,
            name: settings.name,
            calibration: Arc::default(),
        })
    }
}

impl Model for Anthropic {
    fn provider_name(&self) -> &'static str {
        "anthropic"
    }

    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault> {
        let upstream = convert::Upstream {
            name: &self.name,
            max_output_tokens: self.max_output_tokens,
            structured_output: self.structured_output,
            seal: &*self.seal,
        };
        convert::prepare(request, &upstream)
    }

    fn ask<'a>(&'a self, prepared: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        let decoder = move || Decoder::new(prepared, &self.name, Arc::clone(&self.seal));
        let betas = prepared.answer_context.betas.as_deref().and_then(|betas| HeaderValue::from_str(betas).ok());
        Box::pin(async move {
            let with_betas = betas.map(|betas| [self.headers.as_slice(), &[(BETA, betas)]].concat());
            let headers = with_betas.as_deref().unwrap_or(&self.headers);
            let stream = self.transport.ask("/messages", headers, prepared, decoder).await?;
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
        Box::pin(self.transport.identify(name, &self.headers))
    }

    fn wants_image_bytes(&self) -> bool {
        self.fetches_images
    }

    fn recover(&self, request: &ModelRequest<'_>, error: &ModelError) -> Option<Result<PreparedRequest, Fault>> {
        recovery::recover(self.recovers_history, request, error, |request| self.prepare(request))
    }
}
