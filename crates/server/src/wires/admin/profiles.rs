//! `/admin/profiles`: the profiles of a tenant's assistants and their versions.

use amalgam_administration::{PROMPT_BODY, profiles::Profiles};
use axum::extract::Request;

use super::call::{Answer, Call, shown, stored};
use crate::wires::answer;

pub(super) async fn list(call: Call) -> Answer {
    let tenant = call.tenant().await?;
    shown(&Profiles::new(&call.app, call.actor(), &tenant).list(&call.page()?).await?)
}

pub(super) async fn retrieve(call: Call) -> Answer {
    let tenant = call.tenant().await?;
    shown(&Profiles::new(&call.app, call.actor(), &tenant).profile(call.id()).await?)
}

pub(super) async fn put(call: Call, request: Request) -> Answer {
    let body = call.body(request, PROMPT_BODY).await?;
    let tenant = call.tenant().await?;
    stored(Profiles::new(&call.app, call.actor(), &tenant).put(call.id(), &body).await?)
}

pub(super) async fn delete(call: Call) -> Answer {
    let tenant = call.tenant().await?;
    Profiles::new(&call.app, call.actor(), &tenant).delete(call.id()).await?;
    Ok(answer::deleted(call.id(), "profile.deleted"))
}

pub(super) async fn versions(call: Call) -> Answer {
    let tenant = call.tenant().await?;
    shown(&Profiles::new(&call.app, call.actor(), &tenant).versions(call.id(), &call.page()?).await?)
}

/// The differences between a version and the previous one, or the one that `against` names.
pub(super) async fn compare(call: Call) -> Answer {
    let (tenant, against) = (call.tenant().await?, call.query.number("against")?);
    shown(&Profiles::new(&call.app, call.actor(), &tenant).compare(call.id(), call.path.text(1), against).await?)
}
