//! `file_search`: a search over collections that a request names, offered to the model as a function.
//!
//! The output for the model is the result list of the published item, so that the item can include what the model saw.

use std::{collections::HashMap, sync::Arc};

use amalgam_core::{
    ArgumentCheck, BoxFuture, CallDisplay, Fault, FileSearchRequest, Handler, OWN_LABEL, Policy, ResolvedTool,
    RetrievalQuery, Scope, ServerTool, ToolCall, ToolError, ToolOutput,
    file_search::{FILE_SEARCH, queries, write_result},
    store::FoundChunk,
};
use amalgam_protocol::{Json, Raw, Writer};
use futures_util::future::try_join_all;

use crate::{
    knowledge::{KnowledgePorts, broken},
    text,
};

/// The maximum number of queries of one call; the schema has the same maximum.
const MAX_QUERIES: usize = 5;
/// The maximum length of a query.
const QUERY_BYTES: usize = 4096;

const PARAMETERS: &str = r#"{"type":"object","properties":{"queries":{"type":"array","description":"What is looked for: one to five short queries of names and terms, each about one thing.","items":{"type":"string"},"minItems":1,"maxItems":5}},"required":["queries"],"additionalProperties":false}"#;

const DESCRIPTION: &str = "Searches the documents that the user has made available, and gives the pieces that fit best. Use it \
                           before answering anything that the documents may tell. Every result has a `marker` among its \
                           attributes: put it, exactly as it is and without a space before it, behind each statement that \
                           relies on the result.";

const CITE: &str = "Cite the results that you rely on: put the marker of the result, such as [kb:12], directly behind the \
                    statement. Cite nothing else.";

/// The search that a request asks for. Unknown collections are refused.
pub(crate) async fn equip(
    ports: &KnowledgePorts,
    scope: &Scope,
    request: FileSearchRequest,
) -> Result<ResolvedTool, Fault> {
    if let Some((name, _)) = ports.missing(scope, &request.collections).await? {
        let name = text::printable(name, 64);
        let path = format!("{}.vector_store_ids", request.path);
        return Err(Fault::invalid(path, format!("There is no collection '{name}'.")).code("collection_not_found"));
    }
    let parameters = Json::parse(&PARAMETERS.into()).expect("the schema is JSON; a test reads it");
    Ok(ResolvedTool::Server(Box::new(ServerTool {
        name: FILE_SEARCH.to_owned(),
        label: OWN_LABEL.to_owned(),
        own_name: FILE_SEARCH.to_owned(),
        description: Some(DESCRIPTION.to_owned()),
        parameters,
        guidance: None,
        policy: Policy { idempotent: true, after_call_instruction: Some(CITE.to_owned()), ..Policy::default() },
        shown: CallDisplay::FileSearch { results: request.results },
        check: Arc::new(Queries),
        handler: Arc::new(FileSearch { ports: ports.clone(), request }),
    })))
}

/// Accepts the arguments of the schema, and the single `query` that some models write.
struct Queries;

impl ArgumentCheck for Queries {
    fn check(&self, arguments: Raw<'_>) -> Result<(), String> {
        let queries = queries(arguments);
        match queries.len() {
            1..=MAX_QUERIES if queries.iter().any(|query| query.trim().is_empty() || query.len() > QUERY_BYTES) => {
                Err(format!("queries: each must have between 1 and {QUERY_BYTES} bytes"))
            }
            1..=MAX_QUERIES => Ok(()),
            _ => Err(format!("queries: must be a list of 1 to {MAX_QUERIES} strings")),
        }
    }
}

struct FileSearch {
    ports: KnowledgePorts,
    request: FileSearchRequest,
}

impl FileSearch {
    /// The chunks that all queries find, without duplicates, best first.
    async fn find(&self, scope: &Scope, queries: &[&str]) -> Result<Vec<FoundChunk>, ToolError> {
        let FileSearchRequest { collections, conditions, limit, .. } = &self.request;
        let lookups = queries.iter().map(|text| RetrievalQuery { text, collections, conditions, limit: *limit });
        let found = try_join_all(lookups.map(|lookup| self.ports.retrieval.find(scope, lookup))).await;
        let mut best: HashMap<String, FoundChunk> = HashMap::new();
        for chunk in found.map_err(broken)?.into_iter().flat_map(|found| found.chunks) {
            match best.get(&chunk.id) {
                Some(known) if known.score >= chunk.score => {}
                _ => drop(best.insert(chunk.id.clone(), chunk)),
            }
        }
        let mut found: Vec<FoundChunk> = best.into_values().collect();
        found.sort_by(|one, other| other.score.total_cmp(&one.score).then_with(|| place(one).cmp(&place(other))));
        found.retain(|chunk| shown_score(chunk.score) >= self.request.least_score);
        found.truncate(*limit);
        Ok(found)
    }
}

impl Handler for FileSearch {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let queries = queries(call.arguments);
            let queries: Vec<&str> = queries.iter().map(|query| &**query).collect();
            let found = self.find(call.scope, &queries).await?;
            let mut writer = Writer::with_capacity(4096);
            writer.array(|writer| {
                found.iter().for_each(|chunk| write_result(writer, chunk, shown_score(chunk.score)));
            });
            Ok(ToolOutput { output: Json::from_writer(writer) })
        })
    }
}

/// The position of a chunk.
fn place(chunk: &FoundChunk) -> (&str, &str, u64) {
    (&chunk.collection, &chunk.path, chunk.start_line)
}

/// A score as published: from 0 to 1, in the same order.
fn shown_score(score: f64) -> f64 {
    let score = if score.is_finite() { score.max(0.0) } else { 0.0 };
    score / (1.0 + score)
}

#[cfg(test)]
#[path = "file_search_tests.rs"]
mod tests;
