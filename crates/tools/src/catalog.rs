//! The built-in tools, one line each.

mod current_time;

use std::sync::Arc;

use amalgam_core::Clock;

use crate::builtin::Builtin;

/// All built-in tools that need nothing but the time.
pub fn builtins(clock: &Arc<dyn Clock>) -> Vec<Builtin> {
    vec![current_time::builtin(Arc::clone(clock))]
}
