//! Token usage in the form of this API.

use amalgam_protocol::{Usage, Writer};

/// Writes the object with every field that the published clients read.
pub fn write_usage(usage: &Usage, writer: &mut Writer) {
    writer.object(|writer| {
        writer.key("prompt_tokens").number(usage.input_tokens);
        writer.key("completion_tokens").number(usage.output_tokens);
        writer.key("total_tokens").number(usage.total());
        writer.key("prompt_tokens_details").object(|writer| {
            writer.key("cached_tokens").number(usage.cached_tokens);
            writer.key("cache_write_tokens").number(usage.cache_write_tokens);
            writer.key("audio_tokens").number(0);
        });
        writer.key("completion_tokens_details").object(|writer| {
            writer.key("reasoning_tokens").number(usage.reasoning_tokens);
            writer.key("audio_tokens").number(0);
            writer.key("accepted_prediction_tokens").number(0);
            writer.key("rejected_prediction_tokens").number(0);
        });
        if usage.estimated {
            writer.key("estimated").bool(true);
        }
    });
}
