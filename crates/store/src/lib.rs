//! Persistence and sealing.
