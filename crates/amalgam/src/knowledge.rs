//! Imports files into a tenant's knowledge: folders become sources, files become documents, and only changes are written.

mod document;
mod import;
mod sources;
mod write_throttle;

use amalgam_core::Fault;

pub(crate) use document::Settings;
pub(crate) use import::{Import, Totals};
pub(crate) use sources::{Rules, gather};
pub(crate) use write_throttle::WriteThrottle;

/// A fault as text for the operator, including details that callers do not see.
pub(crate) fn explained(fault: Fault) -> anyhow::Error {
    let message = fault.to_string();
    match &fault.detail {
        Some(detail) => anyhow::anyhow!("{message} ({detail})"),
        None => anyhow::anyhow!(message),
    }
}

/// Whether something may be the name of a collection or of a source.
pub(crate) fn is_name(name: &str) -> bool {
    const LONGEST: usize = 64;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LONGEST).contains(&name.len())
        && name.bytes().all(plain)
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}
