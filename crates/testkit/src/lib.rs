//! Scripted upstream, SSE reader and fixtures for tests.
