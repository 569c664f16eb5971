//! Tool kinds, and the one way out to addresses that callers name.
