//! Values that follow a JSON Schema, filled from a message where possible: what the demo model answers with.

mod hints;
mod schema;

pub use hints::SampleHints;
pub use schema::instance;
