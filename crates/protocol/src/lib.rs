//! Responses shapes and SSE frames as plain data.
