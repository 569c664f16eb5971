//! Thoughts that an upstream cannot read, because another upstream, another model or another tenant had them: what may be
//! shown of them is told as text.

use amalgam_protocol::{Part, Reasoning};

/// Why such thoughts are a loss.
pub(crate) const THOUGHTS_OF_OTHERS: &str =
    "thoughts of another upstream, model or tenant cannot be read; a summary is sent as text where there is one";

/// The summary of thoughts as the model itself might have said it; nothing where there is none.
pub(crate) fn told_thoughts(reasoning: &Reasoning<'_>) -> Option<String> {
    let texts: Vec<_> = reasoning.summary.0.iter().filter_map(Part::text).map(|text| text.decode()).collect();
    let summary = texts.join("\n\n");
    (!summary.trim().is_empty()).then(|| format!("[Summary of earlier reasoning]\n{summary}"))
}
