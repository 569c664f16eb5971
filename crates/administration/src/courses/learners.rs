//! What single learners have of courses: their status, progress, eligibility and lists.

use std::collections::HashSet;

use amalgam_app::not_found;
use amalgam_assistant::courses::learner_course_of;
use amalgam_core::{
    AuditAction, Fault, Scope,
    store::{LearnerCourse, Page},
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{check_bulk, object, read_bulk};
use crate::{
    Administration,
    access::{no_tenant, number_id, within},
    audit::snapshot,
    fields::UnixSeconds,
    list::List,
    request,
};

/// What is not found.
const LEARNER_COURSE: &str = "Learner's course";
const LEARNER: &str = "Learner";

/// The longest name of a user, in characters.
const USER: usize = 256;

const PUT: AuditAction = AuditAction::new("learner_course.put");
const DELETE: AuditAction = AuditAction::new("learner_course.delete");
const CHANGE: AuditAction = AuditAction::new("learner_courses.change");
const DELETE_LEARNER: AuditAction = AuditAction::new("learner.delete");

/// A learner's own values of a course. Null is the catalogue's value.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "LearnerCourse")]
pub struct LearnerCourseView {
    /// The number of the course and the user, separated by a colon.
    id: String,
    #[schemars(extend("const" = "learner_course"))]
    object: &'static str,
    /// The learner.
    pub user: String,
    /// The number of the course, which need not be in the catalogue yet.
    pub course_id: i64,
    /// Where the learner is with it.
    pub status: Option<String>,
    /// How much of it is done, in percent.
    pub progress: Option<i64>,
    /// Whether the learner may take it.
    pub is_eligible: Option<bool>,
    /// Whether it is on the learner's list.
    pub in_playlist: Option<bool>,
    pub(crate) updated_at: UnixSeconds,
}

/// A learner's values of a course to store; they replace those that are there. Absent is the catalogue's value.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "rows of files and bodies are read by the same rules; this is their shape")]
pub(crate) struct PutLearnerCourse {
    /// The learner; in `upsert` only.
    #[schemars(length(min = 1, max = 256))]
    user: Option<String>,
    /// The number of the course; in `upsert` only.
    #[schemars(range(min = 1))]
    course_id: Option<i64>,
    #[schemars(length(max = 60))]
    status: Option<String>,
    #[schemars(range(min = 0, max = 100))]
    progress: Option<i64>,
    is_eligible: Option<bool>,
    in_playlist: Option<bool>,
}

/// Values of learners to store and to delete, at most 10,000 together; all of them or none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeLearnerCourses {
    /// Values to store, each with its user and course.
    #[serde(default)]
    #[schemars(with = "Option<Vec<PutLearnerCourse>>")]
    upsert: Vec<Map<String, Value>>,
    /// Values to delete.
    #[serde(default)]
    #[schemars(with = "Option<Vec<LearnerCourseKey>>")]
    delete: Vec<LearnerCourseKey>,
}

/// A user and a course.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(deny_unknown_fields)]
struct LearnerCourseKey {
    user: String,
    course_id: i64,
}

/// What came of a change of learners' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LearnerChanges {
    #[schemars(extend("const" = "learner_course.changes"))]
    object: &'static str,
    /// How many were stored.
    pub written: u64,
    /// How many were deleted; those that were not there are not counted.
    pub deleted: u64,
}

impl From<LearnerCourse> for LearnerCourseView {
    fn from(course: LearnerCourse) -> Self {
        Self {
            id: format!("{}:{}", course.course_id, course.user),
            object: "learner_course",
            user: course.user,
            course_id: course.course_id,
            status: course.status,
            progress: course.progress,
            is_eligible: course.is_eligible,
            in_playlist: course.in_playlist,
            updated_at: UnixSeconds::from_ms(course.updated_at_ms),
        }
    }
}

impl Administration<'_> {
    /// Values of learners by user and course; with `user` those of one.
    pub async fn learner_courses(
        &self,
        scope: &Scope,
        user: Option<&str>,
        page: &Page,
    ) -> Result<List<LearnerCourseView, String>, Fault> {
        let within = within(scope)?;
        let cursor = |after: &str| {
            let (course, user) = after.split_once(':')?;
            Some((user.to_owned(), course.parse().ok()?))
        };
        let wrong = || request::wrong("after", "must be `last_id` of the page before");
        let after: Option<(String, i64)> =
            page.after.as_deref().map(|after| cursor(after).ok_or_else(wrong)).transpose()?;
        let after = after.as_ref().map(|(user, course)| (user.as_str(), *course));
        let found = match user.is_some_and(|user| !is_user(user)) {
            true => Vec::new(),
            false => self.store.learner_courses_within(within, user, after, page.limit + 1).await?,
        };
        let views = found.into_iter().map(LearnerCourseView::from).collect();
        Ok(List::new(views, page.limit, |one: &LearnerCourseView| one.id.clone()))
    }

    /// One learner's values of one course.
    pub async fn learner_course(&self, scope: &Scope, user: &str, course_id: &str) -> Result<LearnerCourseView, Fault> {
        let id: i64 = number_id(LEARNER_COURSE, course_id)?;
        let missing = || not_found(LEARNER_COURSE, course_id);
        if !is_user(user) || id < 1 {
            return Err(missing());
        }
        let found = self.store.learner_courses_within(within(scope)?, Some(user), Some((user, id - 1)), 1).await?;
        let found = found.into_iter().find(|one| one.course_id == id);
        Ok(found.ok_or_else(missing)?.into())
    }

    /// Stores one learner's values of one course; true if there were none.
    pub async fn put_learner_course(
        &self,
        scope: &Scope,
        user: &str,
        course_id: &str,
        body: &Bytes,
    ) -> Result<(LearnerCourseView, bool), Fault> {
        let within = within(scope)?;
        let id: i64 = number_id(LEARNER_COURSE, course_id)?;
        let mut fields = object(body)?;
        for name in ["id", "object", "updated_at"] {
            fields.remove(name);
        }
        for (name, value) in [("user", Value::from(user)), ("course_id", Value::from(id))] {
            let in_body = fields.insert(name.to_owned(), value.clone()).filter(|value| !value.is_null());
            if in_body.is_some_and(|in_body| in_body != value) {
                return Err(request::wrong(name, "it must equal that in the path"));
            }
        }
        let course = read(&fields, "body", self.now_ms)?;
        let before = self.store.learner_courses_within(within, Some(user), Some((user, id - 1)), 1).await?;
        let before = before.into_iter().find(|one| one.course_id == id).map(LearnerCourseView::from);
        let is_new = before.is_none();
        let view = LearnerCourseView::from(course.clone());
        let audit = self.change(scope.tenant_id(), PUT, view.id.clone());
        let audit = audit.before(before.and_then(|before| snapshot(&before))).after(snapshot(&view));
        let put = self.store.change_learner_courses(within, vec![course], Vec::new(), audit).await?;
        put.ok_or_else(|| no_tenant(scope.tenant_id()))?;
        Ok((view, is_new))
    }

    /// Deletes one learner's values of one course: the catalogue's count again.
    pub async fn delete_learner_course(&self, scope: &Scope, user: &str, course_id: &str) -> Result<String, Fault> {
        let before = self.learner_course(scope, user, course_id).await?;
        let audit = self.change(scope.tenant_id(), DELETE, before.id.clone()).before(snapshot(&before));
        let pair = vec![(before.user, before.course_id)];
        match self.store.change_learner_courses(within(scope)?, Vec::new(), pair, audit).await? {
            Some(1) => Ok(before.id),
            _ => Err(not_found(LEARNER_COURSE, course_id)),
        }
    }

    /// Deletes all values of one learner.
    pub async fn delete_learner(&self, scope: &Scope, user: &str) -> Result<u64, Fault> {
        let within = within(scope)?;
        let audit = self.change(scope.tenant_id(), DELETE_LEARNER, user).before(snapshot(&json!({"user": user})));
        match is_user(user) {
            true => match self.store.delete_learner(within, user, audit).await? {
                0 => Err(not_found(LEARNER, user)),
                deleted => Ok(deleted),
            },
            false => Err(not_found(LEARNER, user)),
        }
    }

    /// Stores and deletes values of many learners; all of them or none.
    pub async fn change_learner_courses(&self, scope: &Scope, body: &Bytes) -> Result<LearnerChanges, Fault> {
        request::object(body)?;
        let ChangeLearnerCourses { upsert, delete } = read_bulk(body)?;
        check_bulk(upsert.len() + delete.len())?;
        let mut courses = Vec::with_capacity(upsert.len());
        for (index, fields) in upsert.iter().enumerate() {
            courses.push(read(fields, &format!("upsert[{index}]"), self.now_ms)?);
        }
        if let Some(index) = delete.iter().position(|key| !is_user(&key.user)) {
            return Err(request::wrong(format!("delete[{index}].user"), "no user has this name"));
        }
        self.write_learner_courses(scope, courses, delete.into_iter().map(|key| (key.user, key.course_id)).collect())
            .await
    }

    /// The same for values that were read already.
    pub async fn write_learner_courses(
        &self,
        scope: &Scope,
        courses: Vec<LearnerCourse>,
        delete: Vec<(String, i64)>,
    ) -> Result<LearnerChanges, Fault> {
        let within = within(scope)?;
        let mut seen: HashSet<(&str, i64)> = HashSet::new();
        let upserts = courses.iter().map(|one| (one.user.as_str(), one.course_id));
        let named = [("upsert", upserts.collect::<Vec<_>>())].into_iter();
        let deletes = delete.iter().map(|(user, id)| (user.as_str(), *id)).collect();
        for (list, keys) in named.chain([("delete", deletes)]) {
            if let Some(index) = keys.into_iter().position(|key| !seen.insert(key)) {
                return Err(request::wrong(format!("{list}[{index}]"), "the user and the course are named twice"));
            }
        }
        let written = courses.len() as u64;
        let details = json!({"upsert": written, "delete": delete.len()});
        let audit = self.change(scope.tenant_id(), CHANGE, "learners").after(snapshot(&details));
        let deleted = self.store.change_learner_courses(within, courses, delete, audit).await?;
        let deleted = deleted.ok_or_else(|| no_tenant(scope.tenant_id()))?;
        Ok(LearnerChanges { object: "learner_course.changes", written, deleted })
    }
}

fn read(fields: &Map<String, Value>, place: &str, now_ms: u64) -> Result<LearnerCourse, Fault> {
    learner_course_of(fields, now_ms).map_err(|reason| request::wrong(place.to_owned(), &reason))
}

/// Whether a user can have this name. Any other is reported as not found.
fn is_user(user: &str) -> bool {
    !user.is_empty() && user.chars().count() <= USER && !user.chars().any(char::is_control)
}
