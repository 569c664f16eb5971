//! Tools of the bank that were made ready before.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use amalgam_core::store::BankTool;

use super::bank::Ready;

const MAX_KEPT: usize = 1024;

/// One a tenant and name, for as long as the row that it was made from stays what it was.
#[derive(Default)]
pub(super) struct Built(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    entries: HashMap<(i64, String), Entry>,
    uses: u64,
}

struct Entry {
    tool: BankTool,
    ready: Ready,
    used: u64,
}

impl Built {
    pub(super) fn get(&self, tenant_id: i64, tool: &BankTool) -> Option<Ready> {
        let mut kept = self.kept();
        kept.uses += 1;
        let uses = kept.uses;
        // The whole row and not its time alone: two writes may share a millisecond.
        let entry = kept.entries.get_mut(&(tenant_id, tool.name.clone())).filter(|entry| entry.tool == *tool)?;
        entry.used = uses;
        Some(entry.ready.clone())
    }

    pub(super) fn keep(&self, tenant_id: i64, tool: &BankTool, ready: Ready) {
        let mut kept = self.kept();
        kept.uses += 1;
        let entry = Entry { tool: tool.clone(), ready, used: kept.uses };
        kept.entries.insert((tenant_id, tool.name.clone()), entry);
        if kept.entries.len() > MAX_KEPT {
            let oldest = kept.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| kept.entries.remove(&oldest));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Every change is whole before anything could panic.
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

    fn ready() -> Ready {
        Ready { check: Arc::new(Nothing), handler: Arc::new(Nothing) }
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
        let built = Built::default();
        built.keep(1, &row("a"), ready());
        assert!(built.get(1, &row("a")).is_some());
        assert!(built.get(2, &row("a")).is_none(), "another tenant's");
        assert!(built.get(1, &row("b")).is_none());
        let changed = BankTool { settings: Json::parse(&r#"{"a":1}"#.into()).unwrap(), ..row("a") };
        assert!(built.get(1, &changed).is_none(), "changed in the same millisecond");
        assert!(built.get(1, &BankTool { common: true, ..row("a") }).is_none(), "of another bank");
    }

    #[test]
    fn what_was_used_longest_ago_is_forgotten_first() {
        let built = Built::default();
        for n in 0..MAX_KEPT {
            built.keep(1, &row(&n.to_string()), ready());
        }
        assert!(built.get(1, &row("0")).is_some());
        built.keep(1, &row("new"), ready());
        assert!(built.get(1, &row("0")).is_some());
        assert!(built.get(1, &row("1")).is_none());
        assert_eq!(built.kept().entries.len(), MAX_KEPT);
    }
}
