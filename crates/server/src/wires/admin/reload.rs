//! `POST /admin/reload`: reads the configuration again, for operators.

use super::call::{Answer, Call, shown};

/// With `dry_run=true` only says what would change.
pub(super) async fn reload(call: Call) -> Answer {
    if call.query.flag("dry_run")? {
        return shown(&call.app.reload.preview(&call.scope).await?);
    }
    let report = call.app.reload.reload(&call.scope).await?;
    call.administration().record_reload(call.operator()?, &report).await?;
    shown(&report)
}
