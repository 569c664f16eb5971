//! A list of losses that says each one once.

use std::borrow::Cow;

use amalgam_core::Loss;

/// What could not be carried over so far.
#[derive(Debug, Default)]
pub(super) struct Losses(Vec<Loss>);

impl Losses {
    /// Says that `field` was not carried over, and why.
    pub(super) fn add(&mut self, field: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) {
        self.push(Loss::new(field, reason));
    }

    /// A hundred images with the same fault are one loss.
    pub(super) fn push(&mut self, loss: Loss) {
        if !self.0.contains(&loss) {
            self.0.push(loss);
        }
    }

    /// Takes over another list.
    pub(super) fn extend(&mut self, losses: impl IntoIterator<Item = Loss>) {
        losses.into_iter().for_each(|loss| self.push(loss));
    }

    /// The list.
    pub(super) fn into_list(self) -> Vec<Loss> {
        self.0
    }
}
