//! Embeddings of texts: `/embeddings` of upstreams with an OpenAI API.
//!
//! They have their own connections and breaker: an upstream whose embeddings fail still answers turns.

use amalgam_core::{EmbeddingRequest, EmbeddingResult, Fault, FaultKind, ModelError};
use amalgam_protocol::{Json, Writer};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::{
    settings::{UpstreamKind, UpstreamSettings},
    transport::Transport,
};

const PATH: &str = "/embeddings";
/// The maximum number and size of the texts of one request. Servers with small models accept no more.
const TEXTS_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: usize = 128 * 1024;
/// The maximum number of dimensions.
const MAX_DIMENSIONS: usize = 16 * 1024;

/// The embeddings of one upstream.
pub(crate) struct Embeddings {
    settings: UpstreamSettings,
    /// Created for the first text: most installations have no embeddings.
    transport: OnceCell<Transport>,
}

impl Embeddings {
    pub(crate) fn new(settings: UpstreamSettings) -> Self {
        Self { settings, transport: OnceCell::new() }
    }

    /// Whether the API of the upstream has embeddings.
    pub(crate) fn exist(&self) -> bool {
        match self.settings.kind {
            UpstreamKind::Responses { .. } | UpstreamKind::Chat { .. } => true,
            UpstreamKind::Anthropic { .. } | UpstreamKind::Demo { .. } => false,
        }
    }

    /// One vector for each text, in order, all with the same number of dimensions; and the tokens, if the upstream counts them.
    pub(crate) async fn of(&self, model: &str, texts: &[&str]) -> Result<EmbeddingResult, Fault> {
        if !self.exist() {
            let message = format!("The upstream '{}' has no embeddings.", self.settings.name);
            return Err(Fault::new(FaultKind::Invalid, message).param("model"));
        }
        let inputs = texts.iter().map(|text| Json::string(text)).collect();
        let request = EmbeddingRequest { inputs, dimensions: None, user: None };
        self.embed(model, &request).await.map_err(ModelError::into_fault)
    }

    /// Embeds the inputs of a request, in several requests to the upstream if they are many.
    pub(crate) async fn embed(&self, model: &str, request: &EmbeddingRequest) -> Result<EmbeddingResult, ModelError> {
        let new = async || Transport::new(&self.settings).map_err(|fault| ModelError::Unreachable(fault.into_detail()));
        let transport = self.transport.get_or_try_init(new).await?;
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(request.inputs.len());
        let mut tokens = Some(0_u64);
        for part in parts(&request.inputs) {
            let answer = transport.post(PATH, body(model, part, request).into()).await?;
            let read = read(&answer, part.len()).map_err(ModelError::Unreadable)?;
            if let (Some(first), Some(new)) = (vectors.first(), read.vectors.first())
                && first.len() != new.len()
            {
                return Err(ModelError::Unreadable("embeddings of several lengths".to_owned()));
            }
            vectors.extend(read.vectors);
            tokens = tokens.zip(read.tokens).map(|(sum, more)| sum.saturating_add(more));
        }
        Ok(EmbeddingResult { vectors, tokens })
    }
}

/// Splits the inputs into batches for one request each.
fn parts(mut inputs: &[Json]) -> impl Iterator<Item = &[Json]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |input: &&Json| {
            bytes += input.bytes().len();
            bytes <= BYTES_AT_ONCE
        };
        // An input that is too long is sent alone; the upstream accepts or refuses it.
        let count = inputs.iter().take(TEXTS_AT_ONCE).take_while(fits).count().max(1);
        let (part, rest) = inputs.split_at_checked(count)?;
        inputs = rest;
        Some(part)
    })
}

/// The body of a request with these inputs.
pub(crate) fn body(model: &str, inputs: &[Json], request: &EmbeddingRequest) -> Vec<u8> {
    let mut writer = Writer::with_capacity(inputs.iter().map(|input| input.bytes().len() + 1).sum::<usize>() + 128);
    writer.object(|writer| {
        writer.key("model").string(model);
        writer.key("input").array(|writer| inputs.iter().for_each(|input| writer.valid(input.bytes())));
        writer.key("encoding_format").string("float");
        if let Some(dimensions) = request.dimensions {
            writer.key("dimensions").number(dimensions);
        }
        if let Some(user) = &request.user {
            writer.key("user").string(user);
        }
    });
    writer.into_bytes()
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Embedding>,
    #[serde(default)]
    usage: Option<EmbeddingUsage>,
}

/// Servers that count name one of both.
#[derive(Deserialize)]
struct EmbeddingUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    total_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Embedding {
    #[serde(default)]
    index: Option<usize>,
    embedding: Vector,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Vector {
    Numbers(Vec<f32>),
    /// Sent by some servers even though floats are requested: little-endian `f32` values.
    Base64(String),
}

impl Vector {
    fn numbers(self) -> Option<Vec<f32>> {
        let numbers = match self {
            Self::Numbers(numbers) => numbers,
            Self::Base64(text) => {
                let bytes = STANDARD.decode(text).ok()?;
                let (numbers, rest) = bytes.as_chunks::<4>();
                rest.is_empty().then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())?
            }
        };
        let fine = (1..=MAX_DIMENSIONS).contains(&numbers.len()) && numbers.iter().all(|number| number.is_finite());
        fine.then_some(numbers)
    }
}

/// Reads the vectors of `count` texts. The error does not quote the upstream.
fn read(answer: &[u8], count: usize) -> Result<EmbeddingResult, String> {
    let Answer { data, usage } = serde_json::from_slice(answer).map_err(|_| "no list of embeddings".to_owned())?;
    if data.len() != count {
        return Err(format!("{} embeddings for {count} texts", data.len()));
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
    for (position, embedding) in data.into_iter().enumerate() {
        let numbers = embedding.embedding.numbers().ok_or_else(|| "an embedding that is none".to_owned())?;
        let slot = vectors.get_mut(embedding.index.unwrap_or(position));
        match slot {
            Some(slot @ None) => *slot = Some(numbers),
            _ => return Err("embeddings whose order cannot be told".to_owned()),
        }
    }
    let vectors: Vec<Vec<f32>> = vectors.into_iter().flatten().collect();
    let length = vectors.first().map(Vec::len);
    match vectors.iter().all(|vector| Some(vector.len()) == length) {
        true => {
            Ok(EmbeddingResult { vectors, tokens: usage.and_then(|usage| usage.prompt_tokens.or(usage.total_tokens)) })
        }
        false => Err("embeddings of several lengths".to_owned()),
    }
}

#[cfg(test)]
#[path = "embeddings_tests.rs"]
mod tests;
