//! `GET /admin/diagnose`: why an assistant does not answer, or does not use its tools.

use amalgam_administration::diagnosis::diagnose as diagnose_agent;

use super::call::{Answer, Call, shown};

pub(super) async fn diagnose(call: Call) -> Answer {
    let (agent, tool) = (call.query.get("agent"), call.query.get("tool"));
    shown(&diagnose_agent(&call.app, &call.tenant().await?, agent, tool).await?)
}
