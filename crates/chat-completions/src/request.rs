//! `POST /v1/chat/completions`: the body as parameters of a turn.

use amalgam_core::{Fault, Loss, Losses};
use amalgam_protocol::{Json, Literal, Raw, RequestError, ResponseParameters, Shape, ShapeError};
use bytes::Bytes;

use crate::{
    content::shown,
    fields::{expect_array, expect_object, flag, text_of},
    messages::{self, LeadingInstructions, MessageItems},
    tools,
};

/// Fields that the Responses API has under the same name.
const SAME: [&str; 17] = [
    "model",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "stream",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "user",
    "max_tool_calls",
    "truncation",
];

/// The maximum number of stop sequences. Servers accept 4 to 16.
const MAX_STOPS: usize = 64;

/// A request as a turn needs it.
#[derive(Debug)]
pub struct ChatRequest {
    /// The parameters of the turn.
    pub parameters: ResponseParameters,
    /// What the translation to these parameters left out.
    pub losses: Vec<Loss>,
    /// How the answer is written.
    pub options: AnswerOptions,
    /// How the parameters are called in the request.
    pub names: FieldNames,
}

/// What the request decides about the form of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerOptions {
    /// Whether a stream has a last chunk with the usage.
    pub include_usage: bool,
    /// How calls are written.
    pub calls: CallStyle,
}

/// How calls of the client's tools are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallStyle {
    /// `tool_calls`
    #[default]
    Tools,
    /// `function_call`, for requests with `functions`.
    Function,
}

impl ChatRequest {
    /// Reads a body of at most `depth` levels. With a conversation, the messages follow the items of the conversation,
    /// and the turn is stored by default.
    pub fn parse(body: &Bytes, depth: usize, conversation: Option<&str>) -> Result<Self, RequestError> {
        Ok(Self::read(&Json::parse_document(body, depth)?, conversation)?)
    }

    fn read(document: &Json, conversation: Option<&str>) -> Result<Self, ShapeError> {
        expect_object(document.raw())?;
        let mut fields = Fields::default();
        let mut parameters = ResponseParameters::default();
        for (key, value) in document.raw().fields().filter(|(_, value)| !value.is_null()) {
            let name = key.decode();
            match SAME.contains(&&*name) {
                true => parameters.set(document, &name, value)?,
                false => fields.take(document, key.into(), &name, value)?,
            }
        }
        let mut losses = Losses::default();
        losses.extend(fields.losses.drain(..));
        let messages = fields.messages.ok_or_else(|| ShapeError::missing("messages"))?;
        let leading = match conversation {
            None => LeadingInstructions::Input,
            Some(_) => LeadingInstructions::Instructions,
        };
        let MessageItems { input, instructions, input_from, instructions_from } =
            messages::read(messages, leading, &mut losses).map_err(|error| error.under("messages"))?;
        parameters.input = input;
        parameters.instructions = instructions;
        parameters.conversation = conversation.map(Json::string);
        parameters.store = Some(parameters.store.unwrap_or(conversation.is_some()));
        parameters.chat_fields = std::mem::take(&mut fields.chat_fields);
        let calls = fields.set_tools(&mut parameters)?;
        let limit = fields.set_limit(document, &mut parameters)?;
        fields.set_text(&mut parameters);
        fields.set_reasoning(&mut parameters)?;
        fields.set_logprobs(&mut parameters)?;
        Ok(Self {
            parameters,
            losses: losses.into_list(),
            options: AnswerOptions { include_usage: fields.include_usage, calls },
            names: FieldNames { input_from, instructions_from, limit },
        })
    }
}

/// The fields that are not parameters of the same name.
#[derive(Default)]
struct Fields<'a> {
    messages: Option<Raw<'a>>,
    max_tokens: Option<Raw<'a>>,
    max_completion_tokens: Option<Raw<'a>>,
    tools: Option<Raw<'a>>,
    tool_choice: Option<Raw<'a>>,
    functions: Option<Raw<'a>>,
    function_call: Option<Raw<'a>>,
    response_format: Option<Raw<'a>>,
    verbosity: Option<Raw<'a>>,
    reasoning: Option<Raw<'a>>,
    reasoning_effort: Option<Raw<'a>>,
    logprobs: bool,
    include_usage: bool,
    chat_fields: Vec<(Literal, Json)>,
    losses: Vec<Loss>,
}

impl<'a> Fields<'a> {
    fn take(&mut self, document: &Json, key: Literal, name: &str, value: Raw<'a>) -> Result<(), ShapeError> {
        match name {
            "messages" => self.messages = Some(value),
            "max_tokens" => self.max_tokens = Some(value),
            "max_completion_tokens" => self.max_completion_tokens = Some(value),
            "tools" => self.tools = Some(value),
            "tool_choice" => self.tool_choice = Some(value),
            "functions" => self.functions = Some(value),
            "function_call" => self.function_call = Some(value),
            "response_format" => self.response_format = Some(value),
            "verbosity" => self.verbosity = Some(value),
            "reasoning" => self.reasoning = Some(value),
            "reasoning_effort" => self.reasoning_effort = Some(value),
            "logprobs" => self.logprobs = flag(value, name)?,
            "stream_options" => {
                expect_object(value).map_err(|error| error.under(name))?;
                let usage = crate::fields::present(value, "include_usage");
                let usage = usage.map(|usage| flag(usage, "include_usage").map_err(|error| error.under(name)));
                self.include_usage = usage.transpose()?.unwrap_or(false);
            }
            "n" => match value.as_u64() {
                Some(1) => {}
                _ => return Err(ShapeError::value("n", "must be 1: one answer is made for each request")),
            },
            "modalities" => self.modalities(value)?,
            "audio" => self.lose("audio", "answers are text"),
            "web_search_options" => {
                self.lose("web_search_options", "no search is made for it; offer a search tool in `tools`");
            }
            _ => {
                check_chat_field(name, value)?;
                self.chat_fields.push((key, document.part(value)));
            }
        }
        Ok(())
    }

    fn lose(&mut self, field: &'static str, reason: &'static str) {
        self.losses.push(Loss::new(field, reason));
    }

    fn modalities(&mut self, value: Raw<'_>) -> Result<(), ShapeError> {
        expect_array(value, "an array of strings").map_err(|error| error.under("modalities"))?;
        let is_text = |kind: Raw<'_>| kind.as_str().is_some_and(|kind| kind.is("text"));
        if !value.elements().all(is_text) {
            self.lose("modalities", "answers are text");
        }
        Ok(())
    }

    fn set_tools(&self, parameters: &mut ResponseParameters) -> Result<CallStyle, ShapeError> {
        if let Some(functions) = self.functions {
            if self.tools.is_some() {
                return Err(ShapeError::value("functions", "cannot be used together with `tools`"));
            }
            parameters.tools = Some(tools::functions(functions).map_err(|error| error.under("functions"))?);
            let choice = self
                .function_call
                .map(|choice| tools::function_call(choice).map_err(|error| error.under("function_call")));
            parameters.tool_choice = choice.transpose()?;
            // An answer in this form has room for one call.
            parameters.parallel_tool_calls = Some(false);
            return Ok(CallStyle::Function);
        }
        let read = self.tools.map(|sent| tools::tools(sent).map_err(|error| error.under("tools")));
        parameters.tools = read.transpose()?;
        let choice =
            self.tool_choice.map(|choice| tools::tool_choice(choice).map_err(|error| error.under("tool_choice")));
        parameters.tool_choice = choice.transpose()?;
        Ok(CallStyle::Tools)
    }

    /// Sets the limit of output tokens; returns the name of the field that has it.
    fn set_limit(&self, document: &Json, parameters: &mut ResponseParameters) -> Result<&'static str, ShapeError> {
        let (name, value) = match (self.max_completion_tokens, self.max_tokens) {
            (None, Some(value)) => ("max_tokens", Some(value)),
            (value, _) => ("max_completion_tokens", value),
        };
        if let Some(value) = value {
            let renamed = |error: ShapeError| ShapeError { path: name.to_owned(), ..error };
            parameters.set(document, "max_output_tokens", value).map_err(renamed)?;
        }
        Ok(name)
    }

    fn set_text(&self, parameters: &mut ResponseParameters) {
        if self.response_format.is_none() && self.verbosity.is_none() {
            return;
        }
        // The reader of the parameter knows this API's form of a schema.
        parameters.text = Some(Json::object(|writer| {
            for (name, value) in [("format", self.response_format), ("verbosity", self.verbosity)] {
                if let Some(value) = value {
                    writer.key(name).raw(value);
                }
            }
        }));
    }

    fn set_reasoning(&self, parameters: &mut ResponseParameters) -> Result<(), ShapeError> {
        if let Some(reasoning) = self.reasoning {
            expect_object(reasoning).map_err(|error| error.under("reasoning"))?;
        }
        if let Some(effort) = self.reasoning_effort {
            text_of(effort, "reasoning_effort")?;
        }
        if self.reasoning.is_none() && self.reasoning_effort.is_none() {
            return Ok(());
        }
        parameters.reasoning = Some(Json::object(|writer| {
            let others = self.reasoning.map(Raw::fields).into_iter().flatten();
            for (key, value) in others.filter(|(key, _)| self.reasoning_effort.is_none() || !key.is("effort")) {
                writer.key_text(&key.decode()).raw(value);
            }
            if let Some(effort) = self.reasoning_effort {
                writer.key("effort").raw(effort);
            }
        }));
        Ok(())
    }

    fn set_logprobs(&self, parameters: &mut ResponseParameters) -> Result<(), ShapeError> {
        if self.logprobs {
            parameters.include.push("message.output_text.logprobs".to_owned());
        } else if parameters.top_logprobs.is_some_and(|count| count > 0) {
            return Err(ShapeError::value("top_logprobs", "needs `logprobs` to be true"));
        }
        Ok(())
    }
}

/// Checks the fields of this API that upstreams receive as they are.
fn check_chat_field(name: &str, value: Raw<'_>) -> Result<(), ShapeError> {
    match name {
        "stop" => {
            let count = match value.shape() {
                Shape::String => 1,
                Shape::Array => value.elements().count(),
                _ => return Err(ShapeError::expected(name, "a string or an array of strings", value)),
            };
            if count > MAX_STOPS {
                return Err(ShapeError::value(name, format!("must have at most {MAX_STOPS} sequences")));
            }
            for (index, stop) in value.elements().enumerate() {
                text_of(stop, "").map_err(|error| error.at(index).under(name))?;
            }
        }
        "seed" if value.as_f64().is_none_or(|seed| seed.fract() != 0.0) => {
            return Err(ShapeError::expected(name, "an integer", value));
        }
        "logit_bias" => {
            expect_object(value).map_err(|error| error.under(name))?;
            for (token, bias) in value.fields() {
                let path = shown(&token.decode());
                match bias.as_f64() {
                    None => return Err(ShapeError::expected(&path, "a number", bias).under(name)),
                    Some(bias) if !(-100.0..=100.0).contains(&bias) => {
                        return Err(ShapeError::value(&path, "must be between -100 and 100").under(name));
                    }
                    Some(_) => {}
                }
            }
        }
        "prediction" => expect_object(value).map_err(|error| error.under(name))?,
        _ => {}
    }
    Ok(())
}

/// The names that the parameters of a turn have in the request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldNames {
    /// The message of each item of the input.
    input_from: Vec<usize>,
    /// The message of each item of the instructions.
    instructions_from: Vec<usize>,
    /// The field with the limit of output tokens.
    limit: &'static str,
}

impl FieldNames {
    /// The fault in terms of the request.
    pub fn restate(&self, mut fault: Fault) -> Fault {
        let Some(param) = fault.param.as_deref() else { return fault };
        let Some(name) = self.name_of(param) else { return fault };
        fault.message = fault.message.replace(&format!("'{param}'"), &format!("'{name}'")).into();
        fault.param = Some(name.into());
        fault
    }

    fn name_of(&self, param: &str) -> Option<String> {
        let renamed = [
            ("text.format", "response_format"),
            ("text.verbosity", "verbosity"),
            ("max_output_tokens", self.limit),
            ("reasoning.effort", "reasoning_effort"),
            ("conversation", "amalgam-conversation"),
        ];
        for (list, from) in [("input", &self.input_from), ("instructions", &self.instructions_from)] {
            let Some(rest) = param.strip_prefix(list) else { continue };
            let Some((index, below)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
                return rest.is_empty().then(|| "messages".to_owned());
            };
            let message = index.parse::<usize>().ok().and_then(|index| from.get(index))?;
            return Some(format!("messages[{message}]{below}"));
        }
        let (name, rest) = renamed.into_iter().find_map(|(own, name)| Some((name, param.strip_prefix(own)?)))?;
        Some(format!("{name}{rest}"))
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
