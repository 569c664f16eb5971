//! Logs losses: each kind of loss of a model once per process at `info`, then at `debug`.
//!
//! Response headers list only a part of the losses, and WebSocket and background turns have no headers. Logging all of
//! them at `info` would repeat the same lines for every request of a client.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::{LazyLock, Mutex, PoisonError},
};

use amalgam_core::Loss;
use tracing::{debug, info};

/// The number of kinds that are remembered; further kinds are logged at `debug`. Bounded, because callers choose field
/// names.
const MAX_KINDS: usize = 16_384;

/// The kinds that this process has logged at `info`.
static LOGGED: LazyLock<LoggedKinds> = LazyLock::new(LoggedKinds::default);

/// Logs the losses of one model call.
pub(crate) fn log_losses(response_id: &str, upstream: &str, model: &str, losses: &[Loss]) {
    if losses.is_empty() {
        return;
    }
    let (new, known): (Vec<&Loss>, Vec<&Loss>) = losses.iter().partition(|loss| LOGGED.is_new((upstream, model), loss));
    let texts = |losses: &[&Loss]| losses.iter().map(ToString::to_string).collect::<Vec<_>>();
    // Field names come from the caller; as a debug value they are escaped.
    if !new.is_empty() {
        let losses = texts(&new);
        info!(
            response.id = response_id,
            upstream,
            model,
            ?losses,
            "not everything was carried over (logged once for this model)"
        );
    }
    if !known.is_empty() {
        debug!(response.id = response_id, upstream, model, losses = ?texts(&known), "not everything was carried over");
    }
}

/// Kinds of losses, as hashes.
#[derive(Default)]
struct LoggedKinds {
    hasher: RandomState,
    kinds: Mutex<HashSet<u64>>,
}

impl LoggedKinds {
    /// Adds a kind of loss of a model; whether it is new.
    fn is_new(&self, model: (&str, &str), loss: &Loss) -> bool {
        let hash = self.hasher.hash_one((model, kind(&loss.field), kind(&loss.reason)));
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let room = kinds.len() < MAX_KINDS;
        match room {
            true => kinds.insert(hash),
            false => false,
        }
    }
}

/// The text without digits, so that `tools[1]` and `tools[2]` are one kind.
fn kind(text: &str) -> String {
    text.chars().filter(|character| !character.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_loss_is_new_once_for_each_model() {
        // right A10
        let logged = LoggedKinds::default();
        let loss = |field: &'static str, reason: &'static str| Loss::new(field, reason);
        assert!(logged.is_new(("a", "m"), &loss("tools[1]", "no such tool")));
        assert!(!logged.is_new(("a", "m"), &loss("tools[22]", "no such tool")), "another place is no other kind");
        assert!(logged.is_new(("a", "m"), &loss("tools[1]", "another reason")));
        assert!(logged.is_new(("b", "m"), &loss("tools[1]", "no such tool")));
        for n in 0..2 * MAX_KINDS {
            logged.is_new(("a", &n.to_string()), &loss("input", "x"));
        }
        assert_eq!(logged.kinds.lock().unwrap().len(), MAX_KINDS, "the set is bounded");
        assert!(!logged.is_new(("another", "m"), &loss("input", "x")));
    }
}
