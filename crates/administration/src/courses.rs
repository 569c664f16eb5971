//! A tenant's catalogue of courses.

mod learners;

use std::collections::HashSet;

use amalgam_app::not_found;
use amalgam_assistant::{courses::course_of, recommendation::CourseQuery};
use amalgam_core::{
    AuditAction, Fault, FaultKind, Scope,
    store::{Course, ImportCounts, Page},
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    Administration,
    access::{no_tenant, number_id, within},
    audit::snapshot,
    list::{List, number_after},
    request,
};

pub(super) use learners::{ChangeLearnerCourses, PutLearnerCourse};
pub use learners::{LearnerChanges, LearnerCourseView};

/// The maximum size of a body with many courses.
pub const BULK_BODY: usize = 16 * 1024 * 1024;

/// The maximum number of entries of such a body.
const BULK: usize = 10_000;

/// The course in not-found errors.
const COURSE: &str = "Course";

const PUT: AuditAction = AuditAction::new("course.put");
const DELETE: AuditAction = AuditAction::new("course.delete");
const CHANGE: AuditAction = AuditAction::new("courses.change");

/// A course of the catalogue.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "CatalogueCourse")]
pub struct CourseView {
    /// Its number, unique in its tenant.
    #[schemars(range(min = 1))]
    pub id: i64,
    #[schemars(extend("const" = "course"))]
    object: &'static str,
    /// Its title.
    pub title: String,
    /// What it is about.
    description: String,
    /// `Learn` and the like.
    pub modality: String,
    /// `Course` and the like.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where a learner without a value of its own is with it; null for nowhere.
    status: Option<String>,
    /// Whether its parts have an order.
    content_in_sequence: bool,
    /// How much of it has to be done, in percent.
    min_percentage_finish: i64,
    /// What it is filed under.
    pub tags: Vec<String>,
    /// What it consists of.
    assets: Vec<String>,
    /// Where it is.
    url: Option<String>,
    /// How much of it is done, in percent.
    progress: i64,
    /// Whether it may be taken.
    is_eligible: bool,
    /// Whether it is on the learner's list.
    in_playlist: bool,
    /// Whether it is offered.
    pub active: bool,
}

/// A course to store. Absent fields get their defaults; numbers and truth values may be texts, as in a file.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "rows of files and bodies are read by the same rules; this is their shape")]
pub(crate) struct PutCourse {
    /// If present, it must equal the number in the path.
    #[schemars(range(min = 1))]
    id: Option<i64>,
    #[schemars(length(max = 300))]
    title: String,
    #[schemars(length(max = 20_000))]
    description: Option<String>,
    #[schemars(length(max = 60))]
    modality: Option<String>,
    #[schemars(length(max = 60))]
    r#type: Option<String>,
    #[schemars(length(max = 60))]
    status: Option<String>,
    content_in_sequence: Option<bool>,
    #[schemars(range(min = 0, max = 100))]
    min_percentage_finish: Option<i64>,
    #[schemars(length(max = 50))]
    tags: Option<Vec<String>>,
    #[schemars(length(max = 200))]
    assets: Option<Vec<String>>,
    /// An `http` or `https` URL.
    #[schemars(length(max = 2_000))]
    url: Option<String>,
    #[schemars(range(min = 0, max = 100))]
    progress: Option<i64>,
    is_eligible: Option<bool>,
    in_playlist: Option<bool>,
    active: Option<bool>,
}

/// Courses to store and to delete, at most 10,000 together; all of them or none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeCourses {
    /// Courses to store, each with its number.
    #[serde(default)]
    #[schemars(with = "Option<Vec<PutCourse>>")]
    upsert: Vec<Map<String, Value>>,
    /// Numbers of courses to delete, with what learners have of them.
    #[serde(default)]
    #[schemars(with = "Option<Vec<i64>>")]
    delete: Vec<i64>,
}

/// What came of a change of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CourseChanges {
    #[schemars(extend("const" = "course.changes"))]
    object: &'static str,
    /// Courses that were not there.
    pub created: u64,
    /// Courses that were different.
    pub updated: u64,
    /// Courses that were there like this.
    pub unchanged: u64,
    /// Courses that were deleted; numbers without a course are not counted.
    pub deleted: u64,
}

impl From<Course> for CourseView {
    fn from(course: Course) -> Self {
        Self {
            id: course.id,
            object: "course",
            title: course.title,
            description: course.description,
            modality: course.modality,
            kind: course.kind,
            status: course.status,
            content_in_sequence: course.content_in_sequence,
            min_percentage_finish: course.min_percentage_finish,
            tags: course.tags,
            assets: course.assets,
            url: course.url,
            progress: course.progress,
            is_eligible: course.is_eligible,
            in_playlist: course.in_playlist,
            active: course.active,
        }
    }
}

impl Administration<'_> {
    /// Courses by number; with a question the active ones that it finds, the best first.
    pub async fn courses(
        &self,
        scope: &Scope,
        question: Option<&str>,
        page: &Page,
    ) -> Result<List<CourseView, i64>, Fault> {
        let after: Option<i64> = number_after(page, "it is a number")?;
        let Some(question) = question.filter(|question| !question.trim().is_empty()) else {
            let courses = self.store.courses_within(within(scope)?, after, page.limit + 1).await?;
            return Ok(List::new(views(courses), page.limit, |course| course.id));
        };
        // The order has no key: a page continues behind so many results.
        let offset = after.and_then(|after| u64::try_from(after).ok()).unwrap_or_default();
        let words = CourseQuery::new(question, None, None).words();
        let found = match words.is_empty() {
            true => Vec::new(),
            false => self.store.search_courses_within(within(scope)?, &words, offset, page.limit + 1).await?.courses,
        };
        let more = found.len() > page.limit;
        let mut found = views(found);
        found.truncate(page.limit);
        let next = more.then(|| i64::try_from(offset).unwrap_or(i64::MAX).saturating_add(found.len() as i64));
        Ok(List::until(found, next, |course| course.id))
    }

    /// One course, offered or not.
    pub async fn course(&self, scope: &Scope, id: &str) -> Result<CourseView, Fault> {
        let found = self.store.course_within(within(scope)?, number_id(COURSE, id)?).await?;
        Ok(found.ok_or_else(|| not_found(COURSE, id))?.into())
    }

    /// Creates or replaces a course; true if there was none.
    pub async fn put_course(&self, scope: &Scope, id: &str, body: &Bytes) -> Result<(CourseView, bool), Fault> {
        let within = within(scope)?;
        let id: i64 = number_id(COURSE, id)?;
        let course = read_course(object(body)?, "body", Some(id))?;
        let before = self.store.course_within(within, id).await?;
        let view = CourseView::from(course.clone());
        let audit = self.change(scope.tenant_id(), PUT, id.to_string());
        let audit = audit.before(before.map(CourseView::from).and_then(|before| snapshot(&before)));
        let put =
            self.store.change_courses(within, vec![course], Vec::new(), self.now_ms, audit.after(snapshot(&view)));
        let (counts, _) = put.await?.ok_or_else(|| no_tenant(scope.tenant_id()))?;
        Ok((view, counts.created == 1))
    }

    /// Deletes a course, with what learners have of it.
    pub async fn delete_course(&self, scope: &Scope, id: &str) -> Result<(), Fault> {
        let within = within(scope)?;
        let before = self.course(scope, id).await?;
        let audit = self.change(scope.tenant_id(), DELETE, id).before(snapshot(&before));
        let deleted = self.store.change_courses(within, Vec::new(), vec![before.id], self.now_ms, audit).await?;
        match deleted {
            Some((_, 1)) => Ok(()),
            _ => Err(not_found(COURSE, id)),
        }
    }

    /// Stores and deletes many courses; all of them or none.
    pub async fn change_courses(&self, scope: &Scope, body: &Bytes) -> Result<CourseChanges, Fault> {
        let within = within(scope)?;
        request::object(body)?;
        let ChangeCourses { upsert, delete } = read_bulk(body)?;
        let mut seen = HashSet::new();
        let mut courses = Vec::with_capacity(upsert.len());
        check_bulk(upsert.len() + delete.len())?;
        for (index, fields) in upsert.into_iter().enumerate() {
            let place = format!("upsert[{index}]");
            let course = read_course(fields, &place, None)?;
            if !seen.insert(course.id) {
                return Err(request::wrong(place, &format!("the course {} is named twice", course.id)));
            }
            courses.push(course);
        }
        if let Some(index) = delete.iter().position(|id| !seen.insert(*id)) {
            return Err(request::wrong(format!("delete[{index}]"), "the course is named twice"));
        }
        let details = json!({"upsert": courses.len(), "delete": delete.len()});
        let audit = self.change(scope.tenant_id(), CHANGE, "catalogue").after(snapshot(&details));
        let changed = self.store.change_courses(within, courses, delete, self.now_ms, audit).await?;
        let (ImportCounts { created, updated, unchanged }, deleted) =
            changed.ok_or_else(|| no_tenant(scope.tenant_id()))?;
        Ok(CourseChanges { object: "course.changes", created, updated, unchanged, deleted })
    }
}

fn views(courses: Vec<Course>) -> Vec<CourseView> {
    courses.into_iter().map(CourseView::from).collect()
}

/// A body that is one object.
fn object(body: &Bytes) -> Result<Map<String, Value>, Fault> {
    request::object(body)?;
    serde_json::from_slice(body).map_err(|_| request::mistyped("body", "an object"))
}

/// A body of many changes.
fn read_bulk<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, Fault> {
    let refuse = |error: serde_json::Error| {
        let text = error.to_string();
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
        Fault::new(FaultKind::Invalid, format!("Invalid body: {reason}.")).param("body").code("invalid_value")
    };
    serde_json::from_slice(body).map_err(refuse)
}

fn check_bulk(entries: usize) -> Result<(), Fault> {
    match entries <= BULK {
        true => Ok(()),
        false => Err(request::wrong("upsert", &format!("a call changes at most {BULK} entries; send several"))),
    }
}

/// Reads one course. What is shown of a course can be sent back.
fn read_course(mut fields: Map<String, Value>, place: &str, id: Option<i64>) -> Result<Course, Fault> {
    fields.remove("object");
    if let Some(id) = id {
        let in_body = fields.insert("id".to_owned(), id.into()).filter(|value| !value.is_null());
        if in_body.is_some_and(|value| value.as_i64() != Some(id)) {
            return Err(request::wrong("id", "it must equal the number in the path"));
        }
    }
    course_of(&fields).map_err(|reason| request::wrong(place.to_owned(), &reason))
}
