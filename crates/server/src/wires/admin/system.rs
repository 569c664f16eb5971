//! `/admin/system`, `/admin/configuration` and `/admin/upstreams`: the installation, for operators.

use super::call::{Answer, Call, shown};

pub(super) async fn retrieve(call: Call) -> Answer {
    shown(&call.administration().system(&call.scope, &call.app).await?)
}

/// The configuration in force, with the origin of every value.
pub(super) async fn configuration(call: Call) -> Answer {
    shown(&call.app.reload.show(&call.scope).await?)
}

/// Asks an upstream for its models now.
pub(super) async fn check_upstream(call: Call) -> Answer {
    shown(&call.administration().check_upstream(&call.scope, &call.app, call.id()).await?)
}
