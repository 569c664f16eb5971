//! How somebody who listens to a model says that he rests: by the waker that he polls with.

use std::{
    sync::{Arc, LazyLock},
    task::{Context, Wake, Waker},
};

static RESTING: LazyLock<Waker> = LazyLock::new(|| Arc::new(Nobody).into());

/// Wakes nobody, and can be told from every other waker.
struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// The waker of somebody who rests: he looks again by himself, after a while, and need not be told of what comes until then.
///
/// Before he waits without knowing when to look again, he polls with a waker that wakes him.
pub fn resting() -> &'static Waker {
    &RESTING
}

/// Whether whoever polls rests.
pub fn is_resting(context: &Context<'_>) -> bool {
    context.waker().will_wake(&RESTING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_who_rests_is_told_from_everybody_else() {
        let copy = resting().clone();

        assert!(is_resting(&Context::from_waker(resting())));
        assert!(is_resting(&Context::from_waker(&copy)));
        assert!(!is_resting(&Context::from_waker(Waker::noop())));
        assert!(!is_resting(&Context::from_waker(&Waker::from(Arc::new(Nobody)))));
    }
}
