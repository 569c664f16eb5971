//! Parameters of a request besides its messages and tools, and what of them only the Messages API has.

use amalgam_core::hex;
use amalgam_protocol::{ANTHROPIC, Json, Literal, Raw, ResponseParameters, Shape, ShapeError, Writer};
use sha2::{Digest as _, Sha256};

use crate::request::{MessagesPurpose, ThinkingDisplay, flag, present, required};

/// Fields that the parameters of a response hold completely.
const SHARED: [&str; 11] = [
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "max_tokens",
    "temperature",
    "top_p",
    "stream",
    "store",
    ANTHROPIC,
];

/// The longest id of a user that upstreams of OpenAI accept.
const MAX_USER_BYTES: usize = 64;

/// Reads the parameters; returns how reasoning is shown.
pub(crate) fn read(
    body: Raw<'_>,
    purpose: MessagesPurpose,
    parameters: &mut ResponseParameters,
) -> Result<ThinkingDisplay, ShapeError> {
    parameters.max_output_tokens = match (present(body, "max_tokens"), purpose) {
        (Some(limit), _) => {
            let limit = limit.as_u64().filter(|limit| *limit > 0);
            Some(limit.ok_or_else(|| ShapeError::value("max_tokens", "must be a positive integer"))?)
        }
        (None, MessagesPurpose::Message) => return Err(ShapeError::missing("max_tokens")),
        (None, MessagesPurpose::Count) => None,
    };
    parameters.temperature = fraction(body, "temperature")?;
    parameters.top_p = fraction(body, "top_p")?;
    check_lists(body)?;
    parameters.service_tier = match text_of(body, "service_tier")?.as_deref() {
        None | Some("auto") => None,
        Some("standard_only") => Some("default".to_owned()),
        Some(_) => return Err(ShapeError::value("service_tier", "must be `auto` or `standard_only`")),
    };
    if let Some(user) = present(body, "metadata").and_then(|metadata| metadata.get_str("user_id")) {
        parameters.safety_identifier = Some(match user.len() <= MAX_USER_BYTES {
            true => user.into_owned(),
            false => hex(&Sha256::digest(user.as_bytes())),
        });
    }
    let output = object(body, "output_config")?;
    if let Some(format) = output.and_then(|output| present(output, "format")).or(object(body, "output_format")?) {
        parameters.text = Some(text_format(format)?);
    }
    read_thinking(body, output, parameters)
}

/// `thinking` and `output_config.effort` as `reasoning`.
fn read_thinking(
    body: Raw<'_>,
    output: Option<Raw<'_>>,
    parameters: &mut ResponseParameters,
) -> Result<ThinkingDisplay, ShapeError> {
    let effort = output.and_then(|output| output.get_str("effort"));
    let effort = match effort.as_deref() {
        None => None,
        Some("low") => Some("low"),
        Some("medium") => Some("medium"),
        Some("high") => Some("high"),
        Some("xhigh" | "max") => Some("xhigh"),
        Some(_) => {
            return Err(ShapeError::value("output_config.effort", "must be `low`, `medium`, `high`, `xhigh` or `max`"));
        }
    };
    let Some(thinking) = object(body, "thinking")? else {
        if effort.is_some() {
            set_reasoning(parameters, effort, ThinkingDisplay::Shown);
        }
        return Ok(ThinkingDisplay::Shown);
    };
    let display = match thinking.get_str("display").as_deref() {
        Some("omitted") => ThinkingDisplay::Omitted,
        // `summarized`, and other ways to show it.
        _ => ThinkingDisplay::Shown,
    };
    let kind = required(thinking, "type").map_err(|error| error.under("thinking"))?;
    match kind.as_str().map(|kind| kind.decode()).as_deref() {
        // Not as effort `none`, which many models refuse; whatever they reason anyway is not shown.
        Some("disabled") => return Ok(ThinkingDisplay::Hidden),
        Some("adaptive") => set_reasoning(parameters, effort, display),
        Some("enabled") => {
            let budget = required(thinking, "budget_tokens").map_err(|error| error.under("thinking"))?;
            let budget = budget
                .as_u64()
                .filter(|budget| *budget >= 1024)
                .ok_or_else(|| ShapeError::value("thinking.budget_tokens", "must be at least 1024"))?;
            let of_budget = match budget {
                ..=4095 => "low",
                4096..=16_383 => "medium",
                _ => "high",
            };
            set_reasoning(parameters, effort.or(Some(of_budget)), display);
        }
        _ => return Err(ShapeError::value("thinking.type", "must be `enabled`, `disabled` or `adaptive`")),
    }
    Ok(display)
}

fn set_reasoning(parameters: &mut ResponseParameters, effort: Option<&str>, display: ThinkingDisplay) {
    parameters.reasoning = Some(Json::object(|writer| {
        if let Some(effort) = effort {
            writer.key("effort").string(effort);
        }
        if display == ThinkingDisplay::Shown {
            writer.key("summary").string("auto");
        }
    }));
    // A later request returns the signature to the model that has answered.
    parameters.include_sealed_reasoning();
}

fn text_format(format: Raw<'_>) -> Result<Json, ShapeError> {
    if format.get_str("type").as_deref() != Some("json_schema") {
        return Err(ShapeError::value("output_config.format.type", "must be `json_schema`"));
    }
    let schema = required(format, "schema").map_err(|error| error.under("output_config.format"))?;
    if schema.shape() != Shape::Object {
        return Err(ShapeError::expected("output_config.format.schema", "an object", schema));
    }
    Ok(Json::object(|writer| {
        writer.key("format").object(|writer| {
            writer.key("type").string("json_schema");
            writer.key("name").string("output");
            writer.key("schema").raw(schema);
            writer.key("strict").bool(true);
        });
    }))
}

/// The field `anthropic` of the parameters: everything else that the request has, and the flags of its header.
pub(crate) fn extension(body: Raw<'_>, betas: &[String]) -> (Literal, Json) {
    let mut writer = Writer::with_capacity(256);
    writer.object(|writer| {
        for (key, value) in body.fields() {
            let key = key.decode();
            // Clients of other SDKs may send the flags in the body.
            if !value.is_null() && !SHARED.contains(&&*key) && key != "betas" {
                writer.key_text(&key).raw(value);
            }
        }
        if !betas.is_empty() {
            writer.key("betas").array(|writer| betas.iter().for_each(|flag| writer.string(flag)));
        }
    });
    (Literal::from_text(ANTHROPIC), Json::from_writer(writer))
}

/// Fields that upstreams get as they are must have the form that all of them expect.
fn check_lists(body: Raw<'_>) -> Result<(), ShapeError> {
    if let Some(stop) = present(body, "stop_sequences") {
        let is_text = |text: Raw<'_>| text.as_str().is_some_and(|text| !text.is_empty());
        if stop.shape() != Shape::Array || !stop.elements().all(is_text) {
            return Err(ShapeError::value("stop_sequences", "must be an array of strings"));
        }
    }
    if let Some(top_k) = present(body, "top_k")
        && top_k.as_u64().is_none()
    {
        return Err(ShapeError::value("top_k", "must be a non-negative integer"));
    }
    object(body, "metadata")?;
    object(body, "context_management")?;
    flag(body, "stream").map(drop)
}

fn fraction(body: Raw<'_>, name: &str) -> Result<Option<f64>, ShapeError> {
    let Some(value) = present(body, name) else { return Ok(None) };
    let number = value.as_f64().filter(|number| (0.0..=1.0).contains(number));
    number.map(Some).ok_or_else(|| ShapeError::value(name, "must be a number from 0 to 1"))
}

fn text_of(body: Raw<'_>, name: &str) -> Result<Option<String>, ShapeError> {
    let Some(value) = present(body, name) else { return Ok(None) };
    let text = value.as_str().ok_or_else(|| ShapeError::expected(name, "a string", value))?;
    Ok(Some(text.decode().into_owned()))
}

fn object<'a>(body: Raw<'a>, name: &str) -> Result<Option<Raw<'a>>, ShapeError> {
    match present(body, name) {
        Some(value) if value.shape() == Shape::Object => Ok(Some(value)),
        Some(value) => Err(ShapeError::expected(name, "an object", value)),
        None => Ok(None),
    }
}
