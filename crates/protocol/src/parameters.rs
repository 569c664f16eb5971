//! The parameters of a response to create, owned.
//!
//! Every wire builds them, from a JSON body or field by field. Lists and objects stay in their original text;
//! [`ResponseParameters::view`] reads them for the adapters, without a copy and without checking the JSON again.

use std::{borrow::Cow, str::FromStr};

use bytes::Bytes;

use crate::{
    json::{DEFAULT_DEPTH, Json, JsonStr, Literal, Raw, SyntaxError, Writer},
    request::{CreateResponse, Input, Text},
    shape::{Field, Nulls, Present, ShapeError, list, object},
    tool::Tool,
};

/// The parameters of a response. Absent fields are `None`; null counts as absent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResponseParameters {
    /// The model's name.
    pub model: Option<String>,
    /// The input: a text, or an array of items.
    pub input: Option<Json>,
    /// The instructions before all input: a text, or an array of items.
    pub instructions: Option<Json>,
    /// The response that this one continues.
    pub previous_response_id: Option<String>,
    /// The conversation that this one belongs to: an id, or an object with one.
    pub conversation: Option<Json>,
    /// An array of tools.
    pub tools: Option<Json>,
    /// Which tools must or must not be called.
    pub tool_choice: Option<Json>,
    /// Whether one answer may hold several calls.
    pub parallel_tool_calls: Option<bool>,
    /// The maximum number of server-run tool calls.
    pub max_tool_calls: Option<u64>,
    /// The format and verbosity of the answer's text.
    pub text: Option<Json>,
    /// Reasoning effort and summary.
    pub reasoning: Option<Json>,
    /// Optional parts of the output to include.
    pub include: Vec<String>,
    /// The maximum number of output tokens.
    pub max_output_tokens: Option<u64>,
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// 0 to 1.
    pub top_p: Option<f64>,
    /// −2 to 2.
    pub presence_penalty: Option<f64>,
    /// −2 to 2.
    pub frequency_penalty: Option<f64>,
    /// 0 to 20.
    pub top_logprobs: Option<u64>,
    /// `auto` or `disabled`.
    pub truncation: Option<String>,
    /// Whether events are streamed.
    pub stream: Option<bool>,
    /// `include_obfuscation` and the like.
    pub stream_options: Option<Json>,
    /// Whether the response is stored.
    pub store: Option<bool>,
    /// Whether the turn runs in the background.
    pub background: Option<bool>,
    /// Up to 16 pairs of strings.
    pub metadata: Option<Json>,
    /// `auto`, `default`, `flex`, `priority`.
    pub service_tier: Option<String>,
    /// The end user, hashed.
    pub safety_identifier: Option<String>,
    /// Groups requests that share a prefix in the upstream's cache.
    pub prompt_cache_key: Option<String>,
    /// `in_memory`, `24h`.
    pub prompt_cache_retention: Option<String>,
    /// The end user; the older field.
    pub user: Option<String>,
    /// A prompt template.
    pub prompt: Option<Json>,
    /// When to compact automatically.
    pub context_management: Option<Json>,
    /// Fields of Chat Completions servers that this API does not have, in order: `stop`, `seed`, `logit_bias`. A
    /// wire sets them; upstreams that cannot express one report a loss.
    pub chat_fields: Vec<(Literal, Json)>,
    /// Unknown fields, in order.
    pub extra: Vec<(Literal, Json)>,
}

/// Why a body is not a valid request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The body is not JSON.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// A field has the wrong type or value.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

impl ResponseParameters {
    /// Reads a body of at most `depth` levels. [`Self::view`] checks lists and objects.
    pub fn parse(body: &Bytes, depth: usize) -> Result<Self, RequestError> {
        Ok(Self::read(&Json::parse_document(body, depth)?)?)
    }

    /// Reads an object. An error names the path of the invalid field.
    pub fn read(document: &Json) -> Result<Self, ShapeError> {
        let mut parameters = Self::default();
        for (key, value) in object(document.raw())? {
            parameters.set_field(document, key.into(), &key.decode(), value)?;
        }
        Ok(parameters)
    }

    /// Sets the field `name` to a value of `document`, which another API has under the same name.
    pub fn set(&mut self, document: &Json, name: &str, value: Raw<'_>) -> Result<(), ShapeError> {
        self.set_field(document, Literal::from_text(name), name, value)
    }

    fn set_field(&mut self, document: &Json, key: Literal, name: &str, value: Raw<'_>) -> Result<(), ShapeError> {
        let json = || (!value.is_null()).then(|| document.part(value));
        let text = || Option::<Cow<'_, str>>::field(name, value).map(|text| text.map(Cow::into_owned));
        match name {
            "model" => self.model = text()?,
            "input" => self.input = json(),
            "instructions" => self.instructions = json(),
            "previous_response_id" => self.previous_response_id = text()?,
            "conversation" => self.conversation = json(),
            "tools" => self.tools = json(),
            "tool_choice" => self.tool_choice = json(),
            "parallel_tool_calls" => self.parallel_tool_calls = Field::field(name, value)?,
            "max_tool_calls" => self.max_tool_calls = at_least_one(name, value)?,
            "text" => self.text = json(),
            "reasoning" => self.reasoning = json(),
            "include" => self.include = include(value).map_err(|error| error.under(name))?,
            "max_output_tokens" => self.max_output_tokens = at_least_one(name, value)?,
            "temperature" => self.temperature = between(name, value, 0.0, 2.0)?,
            "top_p" => self.top_p = between(name, value, 0.0, 1.0)?,
            "presence_penalty" => self.presence_penalty = between(name, value, -2.0, 2.0)?,
            "frequency_penalty" => self.frequency_penalty = between(name, value, -2.0, 2.0)?,
            "top_logprobs" => {
                self.top_logprobs = Field::field(name, value)?;
                if self.top_logprobs.is_some_and(|count| count > 20) {
                    return Err(ShapeError::value(name, "must be at most 20"));
                }
            }
            "truncation" => self.truncation = one_of(name, value, &["auto", "disabled"])?,
            "stream" => self.stream = Field::field(name, value)?,
            "stream_options" => self.stream_options = json(),
            "store" => self.store = Field::field(name, value)?,
            "background" => self.background = Field::field(name, value)?,
            "metadata" => self.metadata = json(),
            "service_tier" => self.service_tier = text()?,
            "safety_identifier" => self.safety_identifier = text()?,
            "prompt_cache_key" => self.prompt_cache_key = text()?,
            "prompt_cache_retention" => self.prompt_cache_retention = text()?,
            "user" => self.user = text()?,
            "prompt" => self.prompt = json(),
            "context_management" => self.context_management = json(),
            _ => self.extra.push((key, document.part(value))),
        }
        Ok(())
    }

    /// A view for the adapters. An error names the path of the invalid field.
    pub fn view(&self) -> Result<CreateResponse<'_>, ShapeError> {
        let mut nulls = Vec::new();
        let instructions = input("instructions", self.instructions.as_ref(), &mut nulls)?;
        let input = input("input", self.input.as_ref(), &mut nulls)?;
        Ok(CreateResponse {
            model: borrowed(&self.model),
            input,
            instructions,
            previous_response_id: borrowed(&self.previous_response_id),
            conversation: raw(&self.conversation),
            tools: tools(self.tools.as_ref(), &mut nulls)?,
            tool_choice: field("tool_choice", &self.tool_choice)?,
            parallel_tool_calls: self.parallel_tool_calls,
            max_tool_calls: self.max_tool_calls,
            text: field::<Text<'_>>("text", &self.text)?.unwrap_or_default(),
            reasoning: field("reasoning", &self.reasoning)?,
            include: self.include.iter().map(|name| Cow::Borrowed(name.as_str())).collect(),
            max_output_tokens: self.max_output_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            top_logprobs: self.top_logprobs,
            truncation: borrowed(&self.truncation),
            stream: self.stream,
            stream_options: raw(&self.stream_options),
            store: self.store,
            background: self.background,
            metadata: raw(&self.metadata),
            service_tier: borrowed(&self.service_tier),
            safety_identifier: borrowed(&self.safety_identifier),
            prompt_cache_key: borrowed(&self.prompt_cache_key),
            prompt_cache_retention: borrowed(&self.prompt_cache_retention),
            user: borrowed(&self.user),
            prompt: raw(&self.prompt),
            context_management: raw(&self.context_management),
            chat_fields: raw_fields(&self.chat_fields),
            extra: raw_fields(&self.extra),
            nulls,
        })
    }

    /// The request as a JSON body, in which form a queued turn is stored.
    pub fn to_json(&self) -> Json {
        let mut writer = Writer::default();
        writer.object(|writer| {
            let texts = [
                ("model", &self.model),
                ("previous_response_id", &self.previous_response_id),
                ("truncation", &self.truncation),
                ("service_tier", &self.service_tier),
                ("safety_identifier", &self.safety_identifier),
                ("prompt_cache_key", &self.prompt_cache_key),
                ("prompt_cache_retention", &self.prompt_cache_retention),
                ("user", &self.user),
            ];
            for (name, text) in texts {
                if let Some(text) = text {
                    writer.key(name).string(text);
                }
            }
            let values = [
                ("input", &self.input),
                ("instructions", &self.instructions),
                ("conversation", &self.conversation),
                ("tools", &self.tools),
                ("tool_choice", &self.tool_choice),
                ("text", &self.text),
                ("reasoning", &self.reasoning),
                ("stream_options", &self.stream_options),
                ("metadata", &self.metadata),
                ("prompt", &self.prompt),
                ("context_management", &self.context_management),
            ];
            for (name, value) in values {
                if let Some(value) = value {
                    writer.key(name).valid(value.bytes());
                }
            }
            let switches = [
                ("parallel_tool_calls", self.parallel_tool_calls),
                ("stream", self.stream),
                ("store", self.store),
                ("background", self.background),
            ];
            for (name, switch) in switches {
                if let Some(switch) = switch {
                    writer.key(name).bool(switch);
                }
            }
            let counts = [
                ("max_tool_calls", self.max_tool_calls),
                ("max_output_tokens", self.max_output_tokens),
                ("top_logprobs", self.top_logprobs),
            ];
            for (name, count) in counts {
                if let Some(count) = count {
                    writer.key(name).number(count);
                }
            }
            let numbers = [
                ("temperature", self.temperature),
                ("top_p", self.top_p),
                ("presence_penalty", self.presence_penalty),
                ("frequency_penalty", self.frequency_penalty),
            ];
            for (name, number) in numbers {
                if let Some(number) = number {
                    writer.key(name).float(number);
                }
            }
            if !self.include.is_empty() {
                writer.key("include").array(|writer| self.include.iter().for_each(|name| writer.string(name)));
            }
            for (key, value) in self.chat_fields.iter().chain(&self.extra) {
                writer.literal(key);
                writer.outside(b":");
                writer.valid(value.bytes());
            }
        });
        Json::from_writer(writer)
    }

    /// The path of an item of `input` or `instructions` in the request. Null elements count, although reading skips
    /// them.
    pub fn item_path(&self, list: &'static str, item: Raw<'_>) -> String {
        let sent = match list {
            "instructions" => &self.instructions,
            _ => &self.input,
        };
        item_path(list, raw(sent), item)
    }

    /// Requests sealed reasoning, so that it can be sent back to the same model; without it a stored item could only be
    /// sent as its summary. Only if the request asks for reasoning, because upstreams refuse to seal for models that do
    /// not reason.
    pub fn include_sealed_reasoning(&mut self) {
        const SEALED: &str = "reasoning.encrypted_content";
        let effort = |reasoning: &Json| reasoning.raw().get_str("effort").map(Cow::into_owned);
        let reasons = self.reasoning.as_ref().is_some_and(|reasoning| effort(reasoning).as_deref() != Some("none"));
        if reasons && !self.include.iter().any(|name| name == SEALED) {
            self.include.push(SEALED.to_owned());
        }
    }

    /// The total size of the parameters that can be long.
    pub fn size(&self) -> usize {
        let long = [&self.input, &self.instructions, &self.tools, &self.tool_choice, &self.text, &self.metadata];
        let known: usize = long.into_iter().flatten().map(|value| value.bytes().len()).sum();
        known + self.chat_fields.iter().chain(&self.extra).map(|(_, value)| value.bytes().len()).sum::<usize>()
    }
}

impl FromStr for ResponseParameters {
    type Err = RequestError;

    fn from_str(body: &str) -> Result<Self, RequestError> {
        Self::parse(&Bytes::copy_from_slice(body.as_bytes()), DEFAULT_DEPTH)
    }
}

/// The path of an item in its list, such as `input[2]`; the list's name if the item is not in it.
pub fn item_path(name: &str, list: Option<Raw<'_>>, item: Raw<'_>) -> String {
    let mut sent = list.map(Raw::elements).into_iter().flatten();
    match sent.position(|element| std::ptr::eq(element.text(), item.text())) {
        Some(index) => format!("{name}[{index}]"),
        None => name.to_owned(),
    }
}

fn borrowed(text: &Option<String>) -> Option<Cow<'_, str>> {
    text.as_deref().map(Cow::Borrowed)
}

fn raw_fields(fields: &[(Literal, Json)]) -> Vec<(JsonStr<'_>, Raw<'_>)> {
    fields.iter().map(|(key, value)| (key.as_json_str(), value.raw())).collect()
}

fn raw(value: &Option<Json>) -> Option<Raw<'_>> {
    value.as_ref().map(Json::raw)
}

fn field<'a, T: Field<'a>>(name: &str, value: &'a Option<Json>) -> Result<Option<T>, ShapeError> {
    value.as_ref().map(|value| T::field(name, value.raw())).transpose()
}

fn input<'a>(
    name: &'static str,
    value: Option<&'a Json>,
    nulls: &mut Vec<(&'static str, Nulls)>,
) -> Result<Option<Input<'a>>, ShapeError> {
    let Some(value) = value else { return Ok(None) };
    let (input, skipped) = Input::from_caller(value.raw()).map_err(|error| error.under(name))?;
    nulls.extend(skipped.map(|skipped| (name, skipped)));
    Ok(Some(input))
}

fn tools<'a>(value: Option<&'a Json>, nulls: &mut Vec<(&'static str, Nulls)>) -> Result<Vec<Tool<'a>>, ShapeError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let Present { list, nulls: skipped } = Tool::present(value.raw()).map_err(|error| error.under("tools"))?;
    nulls.extend(skipped.map(|skipped| ("tools", skipped)));
    Ok(list)
}

/// `include`: strings; null is none.
fn include(value: Raw<'_>) -> Result<Vec<String>, ShapeError> {
    if value.is_null() {
        return Ok(Vec::new());
    }
    list(value, "an array of strings", |name| <Cow<'_, str>>::read(name).map(Cow::into_owned))
}

fn at_least_one(name: &str, value: Raw<'_>) -> Result<Option<u64>, ShapeError> {
    match Option::<u64>::field(name, value)? {
        Some(0) => Err(ShapeError::value(name, "must be at least 1")),
        number => Ok(number),
    }
}

fn between(name: &str, value: Raw<'_>, low: f64, high: f64) -> Result<Option<f64>, ShapeError> {
    match Option::<f64>::field(name, value)? {
        Some(number) if !(low..=high).contains(&number) => {
            Err(ShapeError::value(name, format!("must be between {low} and {high}")))
        }
        number => Ok(number),
    }
}

fn one_of(name: &str, value: Raw<'_>, choices: &[&str]) -> Result<Option<String>, ShapeError> {
    match Option::<Cow<'_, str>>::field(name, value)? {
        Some(word) if !choices.contains(&&*word) => {
            Err(ShapeError::value(name, format!("must be one of `{}`, but is `{word}`", choices.join("`, `"))))
        }
        word => Ok(word.map(Cow::into_owned)),
    }
}
