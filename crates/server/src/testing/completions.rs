//! Nothing is embedded, and no settings are stored.

use amalgam_core::{
    BoxFuture, EmbeddingRequest, EmbeddingResult, EmbeddingUpstreams, ModelError, Scope,
    store::{ResponseSettingsStore, Stored},
};
use bytes::Bytes;

use super::{Nothing, gives};

impl EmbeddingUpstreams for Nothing {
    fn has_embeddings(&self, _: &str) -> bool {
        false
    }

    fn embedding_body(&self, _: &str, _: &EmbeddingRequest) -> Bytes {
        Bytes::new()
    }

    fn embed_on<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a EmbeddingRequest,
    ) -> BoxFuture<'a, Result<EmbeddingResult, ModelError>> {
        Box::pin(async { Err(ModelError::Unreachable("nothing is here".to_owned())) })
    }
}

impl ResponseSettingsStore for Nothing {
    fn response_settings<'a>(&'a self, _: &'a Scope, _: Vec<String>) -> Stored<'a, Vec<Option<Bytes>>> {
        gives(Vec::new())
    }

    fn replace_response_settings<'a>(&'a self, _: &'a Scope, _: &'a str, _: Bytes) -> Stored<'a, bool> {
        gives(false)
    }
}
