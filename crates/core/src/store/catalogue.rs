//! The administration of a tenant's catalogue, and what of its courses belongs to single learners.

use super::{Course, CoursePage, ImportCounts, Stored, Within};
use crate::audit::AuditDraft;

/// A learner's own values of a course; they replace those of the catalogue for that user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnerCourse {
    /// The learner.
    pub user: String,
    /// The number of the course, which need not be in the catalogue yet.
    pub course_id: i64,
    /// Where the learner is with it; none where the catalogue's value counts, as for the fields below.
    pub status: Option<String>,
    /// How much of it is done.
    pub progress: Option<i64>,
    /// Whether the learner may take it.
    pub is_eligible: Option<bool>,
    /// Whether it is on the learner's list.
    pub in_playlist: Option<bool>,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

impl LearnerCourse {
    /// Puts the learner's values into a course of the catalogue.
    pub fn apply(&self, course: &mut Course) {
        if let Some(status) = &self.status {
            course.status = Some(status.clone());
        }
        course.progress = self.progress.unwrap_or(course.progress);
        course.is_eligible = self.is_eligible.unwrap_or(course.is_eligible);
        course.in_playlist = self.in_playlist.unwrap_or(course.in_playlist);
    }
}

/// The catalogue for its administrators, without the values of any learner; and the values of learners.
pub trait CatalogueStore: Send + Sync {
    /// The courses of a tenant by number, behind `after`, also those that are not offered.
    fn courses_within<'a>(&'a self, within: Within<'a>, after: Option<i64>, limit: usize) -> Stored<'a, Vec<Course>>;

    /// One course of a tenant, offered or not.
    fn course_within<'a>(&'a self, within: Within<'a>, id: i64) -> Stored<'a, Option<Course>>;

    /// The active courses of a tenant in which any of these words is found, like [`super::CourseStore::search_courses`].
    fn search_courses_within<'a>(
        &'a self,
        within: Within<'a>,
        words: &'a [String],
        offset: u64,
        limit: usize,
    ) -> Stored<'a, CoursePage>;

    /// Puts courses, and deletes those with the numbers of `delete` with what learners have of them; all of it or nothing.
    /// Returns the counts, and how many were deleted. Nothing when there is no such tenant.
    fn change_courses<'a>(
        &'a self,
        within: Within<'a>,
        put: Vec<Course>,
        delete: Vec<i64>,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<(ImportCounts, u64)>>;

    /// What learners have, by user and course, behind `after`; of one user or of all.
    fn learner_courses_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<(&'a str, i64)>,
        limit: usize,
    ) -> Stored<'a, Vec<LearnerCourse>>;

    /// Puts what learners have, each of a user and a course at most once, and deletes what `delete` names by user and course;
    /// all of it or nothing. Returns how many there were to delete. Nothing when there is no such tenant.
    fn change_learner_courses<'a>(
        &'a self,
        within: Within<'a>,
        put: Vec<LearnerCourse>,
        delete: Vec<(String, i64)>,
        audit: AuditDraft,
    ) -> Stored<'a, Option<u64>>;

    /// Deletes all that one learner has; how much it was.
    fn delete_learner<'a>(&'a self, within: Within<'a>, user: &'a str, audit: AuditDraft) -> Stored<'a, u64>;
}
