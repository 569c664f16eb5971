//! Embeddings of a caller's texts: a turn with one model call and without output.
//!
//! It takes the path of any other turn, so that the same limits, budgets and prices apply to it, and it is listed and
//! counted like one.

mod request;

use std::sync::{Arc, Mutex, PoisonError};

use amalgam_core::{
    AnswerContext, BoxFuture, CallMap, Candidate, EmbeddingRequest, EmbeddingUpstreams, Fault, Finish, Model,
    ModelError, ModelEvent, ModelRequest, ModelStream, PreparedRequest, Route, Scope, TokenCount, Wire,
};
use amalgam_engine::Identity;
use amalgam_protocol::{Json, ResponseParameters, Usage, Writer};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::stream;

use crate::{
    app::Application,
    turns::{self, HistorySource, OfferedTools, ReplyHead, ShownParameters, StartedTurn, TurnPolicy, TurnRequest},
};

pub use request::{EmbeddingsRequest, VectorFormat};

/// The embeddings of a caller's texts, as the reply's head and body.
pub async fn embed(
    app: &Application,
    scope: &Scope,
    identity: Identity,
    request: EmbeddingsRequest,
) -> Result<(ReplyHead, Bytes), Fault> {
    let EmbeddingsRequest { model, format, request } = request;
    let route = app.catalog.resolve(scope, &model).await?.ok_or_else(|| turns::no_such_model(&model))?;
    // Vectors of different models cannot be compared, so the fallbacks of a model are not asked.
    let candidate = route.candidates.first().ok_or_else(|| Fault::internal("a route without candidates"))?;
    if !app.embeddings.has_embeddings(&candidate.upstream) {
        let message = format!("The model '{model}' has no embeddings.");
        return Err(Fault::invalid("model", message).code("model_not_supported"));
    }
    let vectors = Arc::new(Mutex::new(None));
    let call = EmbeddingCall {
        upstreams: Arc::clone(&app.embeddings),
        upstream: candidate.upstream.clone(),
        model: candidate.name.clone(),
        request,
        vectors: Arc::clone(&vectors),
    };
    let candidate = Candidate { model: Arc::new(call), ..candidate.clone() };
    let parameters = ResponseParameters {
        model: Some(model.clone()),
        input: Some(Json::string("embeddings")),
        store: Some(false),
        // What the limits reserve for the answer.
        max_output_tokens: Some(1),
        ..ResponseParameters::default()
    };
    let policy = TurnPolicy {
        route: Route { candidates: Arc::new([candidate]), card: route.card },
        history: HistorySource::Given(Vec::new(), None),
        profile: None,
        session_id: None,
        session: None,
        offered: OfferedTools::All,
        own_tools: Vec::new(),
        first_tool: None,
        max_rounds: None,
        limit_each_call: false,
        shown: ShownParameters::WithoutInstructions,
        keep_raw_answer: false,
        always_stored: false,
    };
    let turn = TurnRequest::new(Wire::Embeddings, identity, parameters);
    let turn = TurnRequest { policy: Some(Box::new(policy)), ..turn };
    let running = turns::begin(app, scope, turn).await.and_then(StartedTurn::running)?;
    let head = ReplyHead::of(&running.run);
    running.run.finish().await?;
    let embedded = vectors.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (vectors, usage) = embedded.ok_or_else(|| Fault::internal("a turn with embeddings ended without them"))?;
    Ok((head, answer(&model, &vectors, usage, format)))
}

/// The body of the reply.
fn answer(model: &str, vectors: &[Vec<f32>], usage: Usage, format: VectorFormat) -> Bytes {
    let numbers: usize = vectors.iter().map(Vec::len).sum();
    let mut writer = Writer::with_capacity(numbers * 12 + vectors.len() * 64 + 256);
    writer.object(|writer| {
        writer.key("object").string("list");
        writer.key("data").array(|writer| {
            for (index, vector) in vectors.iter().enumerate() {
                writer.object(|writer| {
                    writer.key("object").string("embedding");
                    writer.key("index").number(index as u64);
                    write_vector(writer.key("embedding"), vector, format);
                });
            }
        });
        writer.key("model").string(model);
        writer.key("usage").object(|writer| {
            writer.key("prompt_tokens").number(usage.input_tokens);
            writer.key("total_tokens").number(usage.total());
            if usage.estimated {
                writer.key("estimated").bool(true);
            }
        });
    });
    writer.into_bytes().into()
}

fn write_vector(writer: &mut Writer, vector: &[f32], format: VectorFormat) {
    match format {
        // Written as the shortest text that is read as the same number.
        VectorFormat::Float => {
            writer.array(|writer| vector.iter().for_each(|number| writer.valid(number.to_string().as_bytes())));
        }
        VectorFormat::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
            writer.string(&STANDARD.encode(bytes));
        }
    }
}

type Embedded = (Vec<Vec<f32>>, Usage);

/// A model whose answer is empty; the embeddings are put aside for the wire.
struct EmbeddingCall {
    upstreams: Arc<dyn EmbeddingUpstreams>,
    upstream: String,
    model: String,
    request: EmbeddingRequest,
    vectors: Arc<Mutex<Option<Embedded>>>,
}

impl EmbeddingCall {
    /// Four bytes of a text, or one token of an array, count as a token.
    fn estimate(&self) -> u64 {
        let tokens = self.request.inputs.iter().map(|input| match input.raw().as_str() {
            Some(text) => text.escaped().len().div_ceil(4),
            None => input.raw().elements().count(),
        });
        tokens.sum::<usize>() as u64
    }
}

impl Model for EmbeddingCall {
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault> {
        Ok(PreparedRequest {
            body: self.upstreams.embedding_body(&self.model, &self.request),
            losses: Vec::new(),
            delivery: request.delivery,
            calls: CallMap::default(),
            answer_context: AnswerContext::default(),
        })
    }

    fn ask<'a>(&'a self, _: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let result = self.upstreams.embed_on(&self.upstream, &self.model, &self.request).await?;
            let usage = Usage {
                input_tokens: result.tokens.unwrap_or_else(|| self.estimate()),
                estimated: result.tokens.is_none(),
                ..Usage::default()
            };
            *self.vectors.lock().unwrap_or_else(PoisonError::into_inner) = Some((result.vectors, usage));
            let events = vec![ModelEvent::Usage(usage), ModelEvent::Finish(Finish::Stop)];
            Ok(Box::pin(stream::iter([Ok(events)])) as ModelStream)
        })
    }

    fn count(&self, _: &PreparedRequest) -> TokenCount {
        TokenCount { text: self.estimate(), media: 0 }
    }
}
