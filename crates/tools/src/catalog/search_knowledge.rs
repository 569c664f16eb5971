//! `search_knowledge`: chunks of the documents that the caller's tenant has imported.

use std::sync::Arc;

use amalgam_assistant::catalog::ToolSeed;
use amalgam_core::{BoxFuture, Handler, RetrievalQuery, ToolCall, ToolError, ToolOutput, store::FoundChunk};
use amalgam_knowledge::SEARCH_KNOWLEDGE;
use amalgam_protocol::{Json, Raw, Writer};

use super::seeded;
use crate::{
    builtin::Builtin,
    knowledge::{KnowledgePorts, broken},
};

/// The default number of chunks.
const DEFAULT_LIMIT: usize = 8;
/// The maximum number of chunks; the schema has the same maximum.
const MAX_LIMIT: usize = 20;

pub(super) fn builtin(ports: &KnowledgePorts) -> Builtin {
    let seed = ToolSeed::named(SEARCH_KNOWLEDGE).expect("the catalogue of seeds has the tool of knowledge");
    seeded(seed, Arc::new(SearchKnowledge { ports: ports.clone() }))
}

struct SearchKnowledge {
    ports: KnowledgePorts,
}

impl Handler for SearchKnowledge {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let text = call.arguments.get_str("query").unwrap_or_default();
            let collections: Vec<String> = call
                .arguments
                .get("collections")
                .into_iter()
                .flat_map(Raw::elements)
                .filter_map(|name| name.as_str().map(|name| name.decode().into_owned()))
                .collect();
            let missing = self.ports.missing(call.scope, &collections).await.map_err(|error| broken(error.into()))?;
            if let Some((name, known)) = missing {
                return Err(ToolError::Refused(no_such_collection(name, &known)));
            }
            let limit = call.arguments.get("limit").and_then(Raw::as_u64).map_or(DEFAULT_LIMIT, |limit| limit as usize);
            let lookup = RetrievalQuery {
                text: &text,
                collections: &collections,
                conditions: &[],
                limit: limit.clamp(1, MAX_LIMIT),
            };
            let found = self.ports.retrieval.find(call.scope, lookup).await.map_err(broken)?;
            let mut writer = Writer::with_capacity(4096);
            writer.object(|writer| {
                writer.key("results").array(|writer| found.chunks.iter().for_each(|chunk| write(writer, chunk)));
            });
            Ok(ToolOutput { output: Json::from_writer(writer) })
        })
    }
}

/// The error lists the known names, so that a model can correct a made-up one.
fn no_such_collection(name: &str, known: &[String]) -> String {
    match known {
        [] => "Nothing was imported yet, so that there is nothing to search.".to_owned(),
        known => {
            format!("There is no collection `{}`. There are: {}.", crate::text::printable(name, 64), known.join(", "))
        }
    }
}

fn write(writer: &mut Writer, chunk: &FoundChunk) {
    writer.object(|writer| {
        writer.key("id").string(&chunk.id);
        writer.key("collection").string(&chunk.collection);
        writer.key("path").string(&chunk.path);
        writer.key("lines").string(&format!("{}-{}", chunk.start_line, chunk.end_line));
        writer.key("language").string(&chunk.language);
        if let Some(symbol) = &chunk.symbol {
            writer.key("symbol").string(symbol);
        }
        writer.key("content").string(&chunk.content);
        writer.key("score").float(chunk.score);
    });
}

#[cfg(test)]
#[path = "search_knowledge_tests.rs"]
mod tests;
