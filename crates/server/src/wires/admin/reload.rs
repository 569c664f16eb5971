//! `POST /admin/reload`: reads the configuration again, for operators.

use super::call::{Answer, Call, shown};

pub(super) async fn reload(call: Call) -> Answer {
    shown(&call.app.reload(&call.scope).await?)
}
