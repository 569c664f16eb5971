//! `POST /admin/reload`: reads the configuration again, for operators.

use super::call::{Answer, Call, shown};

pub(super) async fn reload(call: Call) -> Answer {
    let report = call.app.reload.reload(&call.scope).await?;
    call.administration().record_reload(call.operator()?, &report).await?;
    shown(&report)
}
