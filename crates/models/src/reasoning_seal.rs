//! Reasoning that the client carries between requests: sealed together with the upstream and the model that produced it.
//! Reasoning of another upstream, model or tenant cannot be opened; its summary is sent as text instead.

use std::sync::Arc;

use amalgam_core::{AnswerContext, Seal};
use amalgam_protocol::{Part, Raw, Reasoning, Writer};

/// The loss that is reported for such reasoning.
pub(crate) const FOREIGN_REASONING: &str =
    "reasoning of another upstream, model or tenant cannot be read; its summary is sent as text where there is one";

/// The summary of a reasoning item as text; `None` if it has no summary.
pub(crate) fn reasoning_summary(reasoning: &Reasoning<'_>) -> Option<String> {
    let texts: Vec<_> = reasoning.summary.0.iter().filter_map(Part::text).map(|text| text.decode()).collect();
    let summary = texts.join("\n\n");
    (!summary.trim().is_empty()).then(|| format!("[Summary of earlier reasoning]\n{summary}"))
}

/// The owner of sealed reasoning: one model of one upstream, for one tenant.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// The configured name of the upstream.
    pub(crate) upstream: &'a str,
    /// The model's name at the upstream.
    pub(crate) model: &'a str,
    /// The tenant, as the seal identifies it.
    pub(crate) context: &'a str,
    pub(crate) seal: &'a dyn Seal,
}

impl Owner<'_> {
    /// Seals an object with the fields that `write` writes.
    pub(crate) fn seal(&self, write: impl FnOnce(&mut Writer)) -> String {
        let mut writer = Writer::default();
        writer.object(|writer| {
            writer.key("upstream").string(self.upstream);
            writer.key("model").string(self.model);
            write(writer);
        });
        self.seal.seal(self.context, writer.bytes())
    }

    /// Opens a sealed object, if it belongs to this owner. Earlier versions did not record the model.
    pub(crate) fn open(&self, sealed: &str) -> Option<Vec<u8>> {
        let plain = self.seal.open(self.context, sealed)?;
        let raw = Raw::parse(&plain).ok()?;
        let own = raw.get("upstream")?.as_str()?.is(self.upstream)
            && raw.get("model").and_then(Raw::as_str).is_none_or(|own| own.is(self.model));
        own.then_some(plain)
    }
}

/// Seals the reasoning of one answer, if the client asked for that.
pub(crate) struct Sealing {
    wanted: bool,
    upstream: String,
    model: String,
    context: String,
    seal: Arc<dyn Seal>,
}

impl Sealing {
    /// Reads from the context of a request whether reasoning is sealed, and for which owner.
    pub(crate) fn new(answer_context: &AnswerContext, upstream: &str, seal: Arc<dyn Seal>) -> Self {
        Self {
            wanted: answer_context.wants_sealed_reasoning,
            upstream: upstream.to_owned(),
            model: answer_context.model.clone(),
            context: answer_context.seal_context.clone(),
            seal,
        }
    }

    /// Whether the client asked for sealed reasoning.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Seals an object with the fields that `write` writes; `None` if the client did not ask for it.
    pub(crate) fn close(&self, write: impl FnOnce(&mut Writer)) -> Option<String> {
        let Self { upstream, model, context, seal, .. } = self;
        self.wanted.then(|| Owner { upstream, model, context, seal: &**seal }.seal(write))
    }
}

/// Whether a client asked for sealed reasoning.
pub(crate) fn asks_for_sealed(include: &[std::borrow::Cow<'_, str>]) -> bool {
    include.iter().any(|name| name == "reasoning.encrypted_content")
}
