//! Turns with tools.
