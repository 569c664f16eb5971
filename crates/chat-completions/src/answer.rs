//! The completion object for a response object.

use amalgam_protocol::{Raw, Usage, Writer};

use crate::{
    ids::completion_id,
    output::{ShownOutput, incomplete_reason, write_annotation, write_pieces},
    request::{AnswerOptions, CallStyle},
    usage::write_usage,
};

/// The completion object for a response object.
pub fn completion(response: Raw<'_>, options: AnswerOptions) -> Vec<u8> {
    let output = ShownOutput::of(response.get("output").map(Raw::elements).into_iter().flatten());
    let mut writer = Writer::with_capacity(response.text().len().min(64 * 1024) + 256);
    writer.object(|writer| {
        writer.key("id").string(&completion_id(&response.get_str("id").unwrap_or_default()));
        writer.key("object").string("chat.completion");
        writer.key("created").raw(response.get("created_at").unwrap_or(Raw::NULL));
        writer.key("model").raw(response.get("model").unwrap_or(Raw::NULL));
        writer.key("choices").array(|writer| write_choice(writer, response, &output, options));
        match response.get("usage").filter(|usage| !usage.is_null()) {
            Some(usage) => write_usage(&Usage::read_stored(usage), writer.key("usage")),
            None => writer.key("usage").null(),
        }
        write_rest(writer, response);
        let metadata = response.get("metadata").filter(|metadata| metadata.fields().next().is_some());
        if let Some(metadata) = metadata {
            writer.key("metadata").raw(metadata);
        }
    });
    writer.into_bytes()
}

/// Writes the fields after choices and usage, which the last chunk of a stream has too.
pub(crate) fn write_rest(writer: &mut Writer, response: Raw<'_>) {
    writer.key("service_tier").raw(response.get("service_tier").unwrap_or(Raw::NULL));
    writer.key("system_fingerprint").null();
    write_extension(writer, response);
}

/// Writes the field `amalgam`: the model that answered, the losses, and what only the response has.
pub(crate) fn write_extension(writer: &mut Writer, response: Raw<'_>) {
    let Some(provenance) = response.get("amalgam").filter(|provenance| !provenance.is_null()) else { return };
    let kind_is = |item: Raw<'_>, kind: &str| item.get("type").and_then(Raw::as_str).is_some_and(|name| name.is(kind));
    let items = || response.get("output").map(Raw::elements).into_iter().flatten();
    writer.key("amalgam").object(|writer| {
        for (key, value) in provenance.fields() {
            writer.key_text(&key.decode()).raw(value);
        }
        let status = response.get("status").and_then(Raw::as_str).filter(|status| !status.is("completed"));
        if let Some(status) = status {
            writer.key("status").json_str(status);
        }
        let mut waiting = items().filter(|item| kind_is(*item, "mcp_approval_request")).peekable();
        if waiting.peek().is_some() {
            writer.key("approval_requests").array(|writer| waiting.for_each(|item| writer.raw(item)));
        }
    });
}

fn write_choice(writer: &mut Writer, response: Raw<'_>, output: &ShownOutput<'_>, options: AnswerOptions) {
    writer.object(|writer| {
        writer.key("index").number(0);
        writer.key("message").object(|writer| write_message(writer, output, options.calls));
        match output.logprobs.is_empty() {
            true => writer.key("logprobs").null(),
            false => writer.key("logprobs").object(|writer| {
                writer.key("content").array(|writer| output.logprobs.iter().for_each(|one| writer.raw(*one)));
                writer.key("refusal").null();
            }),
        }
        let incomplete = incomplete_reason(response);
        writer.key("finish_reason").string(output.finish_reason(incomplete.as_deref(), options.calls));
    });
}

/// Writes the fields of the model's message.
pub(crate) fn write_message(writer: &mut Writer, output: &ShownOutput<'_>, calls: CallStyle) {
    writer.key("role").string("assistant");
    let is_empty = output.text.is_empty() && output.refusal.is_empty() && output.calls.is_empty();
    match is_empty {
        // Clients fail on a message without content and without calls.
        true => writer.key("content").string(""),
        false => write_pieces(writer.key("content"), &output.text),
    }
    write_pieces(writer.key("refusal"), &output.refusal);
    writer.key("annotations").array(|writer| {
        output.annotations.iter().for_each(|annotation| write_annotation(writer, *annotation));
    });
    if !output.reasoning.is_empty() {
        write_pieces(writer.key("reasoning_content"), &output.reasoning);
    }
    match (calls, output.calls.first()) {
        (_, None) => {}
        (CallStyle::Tools, Some(_)) => {
            writer.key("tool_calls").array(|writer| output.calls.iter().for_each(|call| call.write(writer, None)));
        }
        (CallStyle::Function, Some(call)) => writer.key("function_call").object(|writer| {
            writer.key("name").json_str(call.name);
            writer.key("arguments").json_str(call.payload);
        }),
    }
}
