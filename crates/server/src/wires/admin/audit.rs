//! `/admin/audit`: who changed what, when and from where.

use amalgam_administration::audit::AuditQuery;

use super::call::{Answer, Call, shown};

/// With `actor`, `object`, `from` and `to` only the entries that match.
pub(super) async fn list(call: Call) -> Answer {
    let [actor, object, from, to] = ["actor", "object", "from", "to"].map(|name| call.query.get(name));
    let query = AuditQuery { actor, object, from, to };
    shown(&call.administration().audit(&call.scope, call.tenant_id()?, query, &call.page()?).await?)
}
