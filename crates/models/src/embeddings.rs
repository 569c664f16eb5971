//! Places of texts in the space of a model: `/embeddings` of upstreams that speak like OpenAI.
//!
//! It has connections and a breaker of its own: an upstream whose embeddings fail still answers turns.

use amalgam_core::{Fault, FaultKind, ModelError};
use amalgam_protocol::Writer;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::{
    settings::{UpstreamKind, UpstreamSettings},
    transport::Transport,
};

const PATH: &str = "/embeddings";
/// How many texts are sent at once, and how many bytes of them. Servers with small models take no more.
const TEXTS_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: usize = 128 * 1024;
/// The most coordinates of a place.
const COORDINATES: usize = 16 * 1024;

/// The embeddings of one upstream.
pub(crate) struct Embeddings {
    settings: UpstreamSettings,
    /// Made for the first text: most installations have none.
    transport: OnceCell<Transport>,
}

impl Embeddings {
    pub(crate) fn new(settings: UpstreamSettings) -> Self {
        Self { settings, transport: OnceCell::new() }
    }

    /// One place for each text, in their order and all with the same number of coordinates.
    pub(crate) async fn of(&self, model: &str, texts: &[&str]) -> Result<Vec<Vec<f32>>, Fault> {
        match self.settings.kind {
            UpstreamKind::Responses { .. } | UpstreamKind::Chat { .. } => {}
            UpstreamKind::Anthropic { .. } | UpstreamKind::Demo { .. } => {
                let message = format!("The upstream '{}' has no embeddings.", self.settings.name);
                return Err(Fault::new(FaultKind::Invalid, message).param("model"));
            }
        }
        let transport = self.transport.get_or_try_init(async || Transport::new(&self.settings)).await?;
        let mut places: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
        for part in parts(texts) {
            let answer = transport.post(PATH, body(model, part).into()).await.map_err(ModelError::into_fault)?;
            let read = read(&answer, part.len()).map_err(|what| ModelError::Unreadable(what).into_fault())?;
            if let (Some(first), Some(new)) = (places.first(), read.first())
                && first.len() != new.len()
            {
                return Err(ModelError::Unreadable("places of several spaces".to_owned()).into_fault());
            }
            places.extend(read);
        }
        Ok(places)
    }
}

/// The texts in order, as many at once as may be sent.
fn parts<'t>(mut texts: &'t [&'t str]) -> impl Iterator<Item = &'t [&'t str]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |text: &&&str| {
            bytes += text.len();
            bytes <= BYTES_AT_ONCE
        };
        // A text that is too long goes alone; the upstream says whether it takes it.
        let count = texts.iter().take(TEXTS_AT_ONCE).take_while(fits).count().max(1);
        let (part, rest) = texts.split_at_checked(count)?;
        texts = rest;
        Some(part)
    })
}

fn body(model: &str, texts: &[&str]) -> Vec<u8> {
    let mut writer = Writer::with_capacity(texts.iter().map(|text| text.len() + 16).sum::<usize>() + 128);
    writer.object(|writer| {
        writer.key("model").string(model);
        writer.key("input").array(|writer| texts.iter().for_each(|text| writer.string(text)));
        writer.key("encoding_format").string("float");
    });
    writer.into_bytes()
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Placed>,
}

#[derive(Deserialize)]
struct Placed {
    #[serde(default)]
    index: Option<usize>,
    embedding: Coordinates,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Coordinates {
    Numbers(Vec<f32>),
    /// What some servers send whatever they are asked for: four bytes a number, the lowest first.
    Base64(String),
}

impl Coordinates {
    fn numbers(self) -> Option<Vec<f32>> {
        let numbers = match self {
            Self::Numbers(numbers) => numbers,
            Self::Base64(text) => {
                let bytes = STANDARD.decode(text).ok()?;
                let (numbers, rest) = bytes.as_chunks::<4>();
                rest.is_empty().then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())?
            }
        };
        let fine = (1..=COORDINATES).contains(&numbers.len()) && numbers.iter().all(|number| number.is_finite());
        fine.then_some(numbers)
    }
}

/// The places of `count` texts; what is wrong otherwise, without the upstream's own words.
fn read(answer: &[u8], count: usize) -> Result<Vec<Vec<f32>>, String> {
    let Answer { data } = serde_json::from_slice(answer).map_err(|_| "no list of embeddings".to_owned())?;
    if data.len() != count {
        return Err(format!("{} embeddings for {count} texts", data.len()));
    }
    let mut places: Vec<Option<Vec<f32>>> = vec![None; count];
    for (position, placed) in data.into_iter().enumerate() {
        let numbers = placed.embedding.numbers().ok_or_else(|| "an embedding that is none".to_owned())?;
        let place = places.get_mut(placed.index.unwrap_or(position));
        match place {
            Some(place @ None) => *place = Some(numbers),
            _ => return Err("embeddings whose order cannot be told".to_owned()),
        }
    }
    let places: Vec<Vec<f32>> = places.into_iter().flatten().collect();
    let length = places.first().map(Vec::len);
    match places.iter().all(|place| Some(place.len()) == length) {
        true => Ok(places),
        false => Err("embeddings of several lengths".to_owned()),
    }
}

#[cfg(test)]
#[path = "embeddings_tests.rs"]
mod tests;
