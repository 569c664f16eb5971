//! A cache of handlers of bank tools, so that a turn does not build them again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use amalgam_core::store::BankTool;

use super::bank::RunnableTool;

const CAPACITY: usize = 1024;

/// One entry for each tenant and name, valid while its row in the bank is unchanged.
#[derive(Default)]
pub(super) struct HandlerCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    entries: HashMap<(i64, String), Entry>,
    uses: u64,
}

struct Entry {
    tool: BankTool,
    ready: RunnableTool,
    used: u64,
}

impl HandlerCache {
    pub(super) fn get(&self, tenant_id: i64, tool: &BankTool) -> Option<RunnableTool> {
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        // The whole row is compared, not only its time: two writes may have the same millisecond.
        let entry = state.entries.get_mut(&(tenant_id, tool.name.clone())).filter(|entry| entry.tool == *tool)?;
        entry.used = uses;
        Some(entry.ready.clone())
    }

    pub(super) fn insert(&self, tenant_id: i64, tool: &BankTool, ready: RunnableTool) {
        let mut state = self.state();
        state.uses += 1;
        let entry = Entry { tool: tool.clone(), ready, used: state.uses };
        state.entries.insert((tenant_id, tool.name.clone()), entry);
        if state.entries.len() > CAPACITY {
            let oldest = state.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| state.entries.remove(&oldest));
        }
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        // No change of the map can panic half-way, so a poisoned lock is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use amalgam_core::{ArgumentCheck, BoxFuture, Handler, Policy, ToolCall, ToolError, ToolOutput, store::BankKind};
    use amalgam_protocol::{Json, Raw};

    use super::*;

    struct Nothing;

    impl Handler for Nothing {
        fn run<'a>(&'a self, _call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
            Box::pin(async { Err(ToolError::TimedOut) })
        }
    }

    impl ArgumentCheck for Nothing {
        fn check(&self, _arguments: Raw<'_>) -> Result<(), String> {
            Ok(())
        }
    }

    fn ready() -> RunnableTool {
        RunnableTool { check: Arc::new(Nothing), handler: Arc::new(Nothing) }
    }

    fn row(name: &str) -> BankTool {
        BankTool {
            name: name.to_owned(),
            common: false,
            description: "d".to_owned(),
            parameters: Json::from(Raw::EMPTY_OBJECT),
            kind: BankKind::Client,
            settings: Json::from(Raw::EMPTY_OBJECT),
            guidance: None,
            policy: Policy::default(),
            active: true,
            created_at_ms: 1,
            updated_at_ms: 1,
        }
    }

    // P10
    #[test]
    fn a_tool_is_found_again_by_its_own_tenant_until_its_row_changes() {
        let cache = HandlerCache::default();
        cache.insert(1, &row("a"), ready());
        assert!(cache.get(1, &row("a")).is_some());
        assert!(cache.get(2, &row("a")).is_none(), "another tenant's");
        assert!(cache.get(1, &row("b")).is_none());
        let changed = BankTool { settings: Json::parse(&r#"{"a":1}"#.into()).unwrap(), ..row("a") };
        assert!(cache.get(1, &changed).is_none(), "changed in the same millisecond");
        assert!(cache.get(1, &BankTool { common: true, ..row("a") }).is_none(), "of another bank");
    }

    #[test]
    fn what_was_used_longest_ago_is_forgotten_first() {
        let cache = HandlerCache::default();
        for n in 0..CAPACITY {
            cache.insert(1, &row(&n.to_string()), ready());
        }
        assert!(cache.get(1, &row("0")).is_some());
        cache.insert(1, &row("new"), ready());
        assert!(cache.get(1, &row("0")).is_some());
        assert!(cache.get(1, &row("1")).is_none());
        assert_eq!(cache.state().entries.len(), CAPACITY);
    }
}
