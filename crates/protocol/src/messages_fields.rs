//! What a request of the Messages API has and the Responses API has not.

/// The field of parameters, tools, items and parts that holds what only the Messages API has. Upstreams with that API
/// get it back, and the others report it as a loss:
///
/// - parameters: the fields of the request without a place of their own, and `betas`, the flags of its header;
/// - tools: the fields besides name, description, schema and `strict`; with a `type`, the whole tool;
/// - items and parts: the fields besides the shared ones, such as `cache_control`; or `block`, the whole block, and
///   `message`, the further fields of the message that it ends.
pub const ANTHROPIC: &str = "anthropic";

/// The type of an item that is one content block of the Messages API, in its field [`ANTHROPIC`].
pub const MESSAGES_BLOCK: &str = "messages_block";
