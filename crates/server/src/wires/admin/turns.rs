//! `GET /admin/turns/{response_id}`: a turn of the caller's tenant, with the exact text of every model and tool call.

use super::call::{Answer, Call, shown};

pub(super) async fn retrieve(call: Call) -> Answer {
    shown(&call.administration().turn(&call.scope, call.id()).await?)
}
