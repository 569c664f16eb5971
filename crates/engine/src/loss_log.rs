//! Losses in the log: each kind of loss of a model at `info` once in a process, and at `debug` from then on.
//!
//! Headers tell a part of the losses, and a socket or a turn in the background has no headers, so that the log has to tell
//! them. The same client loses the same things with every request, though.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::{LazyLock, Mutex, PoisonError},
};

use amalgam_core::Loss;
use tracing::{debug, info};

/// So many kinds are remembered; whatever is new behind them is told at `debug`. Callers choose names of fields.
const MOST: usize = 16_384;

/// What was told at `info` by this process.
static TOLD: LazyLock<Told> = LazyLock::new(Told::default);

/// Logs what a model does not see as it was sent.
pub(crate) fn log_losses(response_id: &str, upstream: &str, model: &str, losses: &[Loss]) {
    if losses.is_empty() {
        return;
    }
    let (new, known): (Vec<&Loss>, Vec<&Loss>) = losses.iter().partition(|loss| TOLD.is_new((upstream, model), loss));
    let texts = |losses: &[&Loss]| losses.iter().map(ToString::to_string).collect::<Vec<_>>();
    // Names of fields are the caller's words: as a value they are escaped.
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

/// Kinds of losses by their hashes.
#[derive(Default)]
struct Told {
    hasher: RandomState,
    kinds: Mutex<HashSet<u64>>,
}

impl Told {
    /// Whether this kind of loss was not told of this model before; from now on it was.
    fn is_new(&self, model: (&str, &str), loss: &Loss) -> bool {
        let hash = self.hasher.hash_one((model, kind(&loss.field), kind(&loss.reason)));
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let room = kinds.len() < MOST;
        match room {
            true => kinds.insert(hash),
            false => false,
        }
    }
}

/// A text without its numbers: `tools[1]` and `tools[2]` are lost in the same way.
fn kind(text: &str) -> String {
    text.chars().filter(|character| !character.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_loss_is_new_once_for_each_model() {
        // right A10
        let told = Told::default();
        let loss = |field: &'static str, reason: &'static str| Loss::new(field, reason);
        assert!(told.is_new(("a", "m"), &loss("tools[1]", "no such tool")));
        assert!(!told.is_new(("a", "m"), &loss("tools[22]", "no such tool")), "another place is no other kind");
        assert!(told.is_new(("a", "m"), &loss("tools[1]", "another reason")));
        assert!(told.is_new(("b", "m"), &loss("tools[1]", "no such tool")));
        for n in 0..2 * MOST {
            told.is_new(("a", &n.to_string()), &loss("input", "x"));
        }
        assert_eq!(told.kinds.lock().unwrap().len(), MOST, "the set is bounded");
        assert!(!told.is_new(("another", "m"), &loss("input", "x")));
    }
}
