//! Rows of the audit are chained, also if several processes append them, and belong to the change that they are about.

use amalgam_core::{
    Actor, AuditAction, AuditCheck, AuditDraft, AuditProblem, TenantState,
    store::{AuditFilter, Within},
};

use super::modes::mode;
use crate::given::*;

fn draft(user: &str, tenant_id: i64, object_id: &str, at_ms: u64) -> AuditDraft {
    let actor = Actor { user: Some(user.to_owned()), ..Actor::command(Some("host".to_owned())) };
    let change = actor.change(at_ms, tenant_id, AuditAction::new("mode.put"), object_id);
    change.before(None).after(Some(r#"{"name":"ü"}"#.to_owned()))
}

async fn problems(store: &Engine) -> Vec<(u64, AuditProblem)> {
    let mut check = AuditCheck::default();
    store.audit_chain(operator(), 0, 1000).await.unwrap().iter().for_each(|row| check.row(row));
    let (_, _, breaks) = check.finish(store.audit_head(operator()).await.unwrap());
    breaks.into_iter().map(|found| (found.number, found.problem)).collect()
}

async fn listed(store: &Engine, filter: AuditFilter) -> Option<Vec<String>> {
    let rows = store.audit(operator(), filter, 100).await.unwrap()?;
    Some(rows.into_iter().map(|row| row.content.object_id).collect())
}

pub(crate) async fn rows_are_read_back_as_they_were_appended_and_once(store: Engine) {
    assert_eq!((store.audit_head(operator()).await.unwrap(), problems(&store).await), (None, vec![]));
    let drafts = [draft("ada", 1, "a", 10), draft("bob", 2, "b", 20)];
    for draft in &drafts {
        store.append_audit(operator(), draft.clone()).await.unwrap();
    }
    let rows = store.audit_chain(operator(), 0, 10).await.unwrap();
    let read: Vec<(u64, AuditDraft)> = rows.iter().map(|row| (row.number, row.content.clone())).collect();
    assert_eq!(read, [(1, drafts[0].clone()), (2, drafts[1].clone())]);
    assert_eq!(rows[1].previous, rows[0].hash);
    assert_eq!(store.audit_chain(operator(), 1, 10).await.unwrap(), rows[1..]);
    assert_eq!(problems(&store).await, []);
}

pub(crate) async fn rows_of_many_tasks_make_one_chain(store: Engine) {
    let tasks: Vec<_> = (0..24_u64)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for at in 0..5 {
                    store.append_audit(operator(), draft("ada", 1, &format!("{task}.{at}"), at)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let rows = store.audit_chain(operator(), 0, 1000).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), (1..=120).collect::<Vec<_>>());
    assert_eq!(problems(&store).await, []);
}

pub(crate) async fn a_change_without_effect_has_no_row(store: Engine) {
    let anna = anna();
    let within = Within::Own(anna.admin().unwrap());
    let named = |id: i64| Within::Named(operator(), id);
    assert!(!store.delete_mode(within, "none", draft("ada", 1, "none", 1)).await.unwrap());
    assert!(!store.put_mode(named(99), mode("other"), draft("ada", 99, "other", 2)).await.unwrap());
    assert!(store.put_mode(within, mode("m"), draft("ada", 1, "m", 3)).await.unwrap());
    assert!(store.delete_mode(within, "m", draft("ada", 1, "deleted", 4)).await.unwrap());
    assert_eq!(listed(&store, AuditFilter::default()).await.unwrap(), ["deleted", "m"]);
    // The store assigns the number of a tenant.
    let created = store.create_tenant(operator(), None, "new", TenantState::Stored, NOW, draft("ada", 0, "", 5));
    let created = created.await.unwrap().unwrap().id;
    let last = store.audit(operator(), AuditFilter::default(), 1).await.unwrap().unwrap().remove(0).content;
    assert_eq!((last.tenant_id, last.object_id), (created, created.to_string()));
    assert_eq!(problems(&store).await, []);
}

pub(crate) async fn rows_are_found_by_tenant_actor_object_and_time(store: Engine) {
    let mut ids = Vec::new();
    for (user, tenant, object_id, at) in [("ada", 1, "a", 10), ("bob", 2, "b", 20), ("ada", 1, "c", 30)] {
        let draft = draft(user, tenant, object_id, at);
        ids.push(draft.id.clone());
        store.append_audit(operator(), draft).await.unwrap();
    }
    let text = |text: &str| Some(text.to_owned());
    let none = AuditFilter::default;
    for (filter, found) in [
        (none(), vec!["c", "b", "a"]),
        (AuditFilter { tenant_id: Some(1), ..none() }, vec!["c", "a"]),
        (AuditFilter { actor: text("bob"), ..none() }, vec!["b"]),
        (AuditFilter { actor: text("command"), ..none() }, vec!["c", "b", "a"]),
        (AuditFilter { actor: text("bert"), ..none() }, vec![]),
        (AuditFilter { object: text("mode"), object_id: text("c"), ..none() }, vec!["c"]),
        (AuditFilter { object: text("tool"), ..none() }, vec![]),
        (AuditFilter { from_ms: Some(20), ..none() }, vec!["c", "b"]),
        (AuditFilter { to_ms: Some(20), ..none() }, vec!["a"]),
        (AuditFilter { after: Some(ids[2].clone()), ..none() }, vec!["b", "a"]),
        (AuditFilter { after: Some(ids[2].clone()), tenant_id: Some(1), ..none() }, vec!["a"]),
    ] {
        assert_eq!(listed(&store, filter.clone()).await.unwrap(), found, "{filter:?}");
    }
    // The row of another tenant is like one that does not exist.
    for after in [&ids[1], "audit_none"] {
        let filter = AuditFilter { after: text(after), tenant_id: Some(1), ..none() };
        assert_eq!(listed(&store, filter).await, None, "{after}");
    }
    assert_eq!(store.audit(operator(), none(), 2).await.unwrap().unwrap().len(), 2);
}
