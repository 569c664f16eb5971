//! Runs turns: time, order, cancellation, admission.
