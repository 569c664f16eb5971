//! `/admin/courses`: the catalogue of the caller's tenant, and what its learners have of courses.

use amalgam_administration::{SMALL_BODY, courses::BULK_BODY};
use axum::extract::Request;

use super::call::{Answer, Call, shown, stored};
use crate::wires::answer;

/// With `q` the courses that it finds.
pub(super) async fn list(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().courses(&tenant, call.query.get("q"), &page).await?)
}

pub(super) async fn retrieve(call: Call) -> Answer {
    shown(&call.administration().course(&call.tenant().await?, call.id()).await?)
}

/// Replaces the course completely.
pub(super) async fn put(call: Call, request: Request) -> Answer {
    let body = call.body(request, SMALL_BODY * 2).await?;
    stored(call.administration().put_course(&call.tenant().await?, call.id(), &body).await?)
}

pub(super) async fn delete(call: Call) -> Answer {
    call.administration().delete_course(&call.tenant().await?, call.id()).await?;
    Ok(answer::deleted(call.id(), "course.deleted"))
}

pub(super) async fn change(call: Call, request: Request) -> Answer {
    let body = call.body(request, BULK_BODY).await?;
    shown(&call.administration().change_courses(&call.tenant().await?, &body).await?)
}

/// What all learners have.
pub(super) async fn list_learners(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().learner_courses(&tenant, None, &page).await?)
}

pub(super) async fn change_learners(call: Call, request: Request) -> Answer {
    let body = call.body(request, BULK_BODY).await?;
    shown(&call.administration().change_learner_courses(&call.tenant().await?, &body).await?)
}

/// What one learner has.
pub(super) async fn list_learner(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().learner_courses(&tenant, Some(call.id()), &page).await?)
}

pub(super) async fn delete_learner(call: Call) -> Answer {
    call.administration().delete_learner(&call.tenant().await?, call.id()).await?;
    Ok(answer::deleted(call.id(), "learner.deleted"))
}

pub(super) async fn retrieve_learner_course(call: Call) -> Answer {
    let tenant = call.tenant().await?;
    shown(&call.administration().learner_course(&tenant, call.id(), call.path.text(1)).await?)
}

/// Replaces what the learner has of the course completely.
pub(super) async fn put_learner_course(call: Call, request: Request) -> Answer {
    let (tenant, body) = (call.tenant().await?, call.body(request, SMALL_BODY).await?);
    stored(call.administration().put_learner_course(&tenant, call.id(), call.path.text(1), &body).await?)
}

pub(super) async fn delete_learner_course(call: Call) -> Answer {
    let tenant = call.tenant().await?;
    let id = call.administration().delete_learner_course(&tenant, call.id(), call.path.text(1)).await?;
    Ok(answer::deleted(&id, "learner_course.deleted"))
}
