//! Shared parts of the tools that search knowledge.

#[cfg(test)]
pub(crate) mod library;

use std::sync::Arc;

use amalgam_core::{Fault, Retrieval, Scope, StoreError, ToolError, store::KnowledgeStore};

/// The ports of tools that search knowledge.
#[derive(Clone)]
pub struct KnowledgePorts {
    /// Lists the collections.
    pub store: Arc<dyn KnowledgeStore>,
    /// Searches them.
    pub retrieval: Arc<dyn Retrieval>,
}

impl KnowledgePorts {
    /// The first of these collections that the caller's tenant does not have, and the names of its collections.
    pub(crate) async fn missing<'n>(
        &self,
        scope: &Scope,
        names: &'n [String],
    ) -> Result<Option<(&'n str, Vec<String>)>, StoreError> {
        if names.is_empty() {
            return Ok(None);
        }
        let known: Vec<String> = self.store.collections(scope).await?.into_iter().map(|known| known.name).collect();
        let missing = names.iter().find(|name| !known.contains(name));
        Ok(missing.map(|name| (name.as_str(), known)))
    }
}

/// The error of a failed search. Its cause goes to the log.
pub(crate) fn broken(fault: Fault) -> ToolError {
    let detail = fault.detail.clone().unwrap_or_else(|| fault.to_string());
    ToolError::Broken { detail }
}
