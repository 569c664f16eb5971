//! The administration of the catalogue, and what of its courses belongs to single learners.

use amalgam_core::{
    AuditDraft, Scope, StoreError,
    store::{CatalogueStore, Course, CoursePage, ImportCounts, LearnerCourse, Stored, Within},
};
use serde_json::{Value, json};

use crate::{
    SqlStore, audit,
    courses::{course, put, search},
    engine::{ChangedTenant, EngineQueries, Repeat, SqlConnection, SqlEngine, TenantKey},
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    TenantSql ALL_COURSES = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3";
    TenantSql ANY_COURSE = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND id = $2";
    TenantSql LEARNER_COURSES = "
        SELECT user_id, course_id, status, progress, is_eligible, in_playlist, updated_at FROM learner_courses
        WHERE tenant_id = $1 AND (user_id, course_id) > ($2, $3) ORDER BY user_id, course_id LIMIT $4";
    TenantSql LEARNER_COURSES_OF = "
        SELECT user_id, course_id, status, progress, is_eligible, in_playlist, updated_at FROM learner_courses
        WHERE tenant_id = $1 AND user_id = $2 AND course_id > $3 ORDER BY course_id LIMIT $4";
    TenantSql DELETE_LEARNER = "DELETE FROM learner_courses WHERE tenant_id = $1 AND user_id = $2";
}

impl<E: SqlEngine> CatalogueStore for SqlStore<E> {
    fn courses_within<'a>(&'a self, within: Within<'a>, after: Option<i64>, limit: usize) -> Stored<'a, Vec<Course>> {
        let arguments = (TenantKey::within(within), after.unwrap_or(i64::MIN), limit);
        self.engine.read(arguments, |connection, (tenant, after, limit)| {
            Box::pin(connection.tenant(*tenant, ALL_COURSES, values![*after, *limit]).all(course))
        })
    }

    fn course_within<'a>(&'a self, within: Within<'a>, id: i64) -> Stored<'a, Option<Course>> {
        self.engine.read((TenantKey::within(within), id), |connection, (tenant, id)| {
            Box::pin(connection.tenant(*tenant, ANY_COURSE, values![*id]).first(course))
        })
    }

    fn search_courses_within<'a>(
        &'a self,
        within: Within<'a>,
        words: &'a [String],
        offset: u64,
        limit: usize,
    ) -> Stored<'a, CoursePage> {
        search(self, TenantKey::within(within), None, words, offset, limit)
    }

    fn change_courses<'a>(
        &'a self,
        within: Within<'a>,
        courses: Vec<Course>,
        delete: Vec<i64>,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<(ImportCounts, u64)>> {
        let arguments = (ChangedTenant::of(within), courses, delete, now_ms, audit);
        // Never again: a second time nothing would be new any more.
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, courses, delete, now_ms, audit)| {
            Box::pin(async move {
                if !tenant.exists(connection).await? {
                    return Ok(None);
                }
                let counts = put(connection, tenant.key, courses, *now_ms).await?;
                let deleted = match delete.is_empty() {
                    true => 0,
                    false => {
                        let sql = connection.sql();
                        let learners = sql.forget_learners_of_courses;
                        connection.tenant(tenant.key, learners, values![delete.clone()]).run().await?;
                        connection.tenant(tenant.key, sql.delete_courses, values![delete.clone()]).run().await?
                    }
                };
                audit::append(connection, audit).await?;
                Ok(Some((counts, deleted)))
            })
        })
    }

    fn learner_courses_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<(&'a str, i64)>,
        limit: usize,
    ) -> Stored<'a, Vec<LearnerCourse>> {
        let (after_user, after_course) = after.unwrap_or(("", i64::MIN));
        let (user, after_user) = (user.map(str::to_owned), after_user.to_owned());
        let arguments = (TenantKey::within(within), user, after_user, after_course, limit);
        self.engine.read(arguments, |connection, (tenant, user, after_user, after_course, limit)| {
            let query = match user {
                Some(user) => connection.tenant(*tenant, LEARNER_COURSES_OF, values![user, *after_course, *limit]),
                None => connection.tenant(*tenant, LEARNER_COURSES, values![after_user, *after_course, *limit]),
            };
            Box::pin(query.all(learner_course))
        })
    }

    fn change_learner_courses<'a>(
        &'a self,
        within: Within<'a>,
        put: Vec<LearnerCourse>,
        delete: Vec<(String, i64)>,
        audit: AuditDraft,
    ) -> Stored<'a, Option<u64>> {
        let arguments = (ChangedTenant::of(within), put, delete, audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, put, delete, audit)| {
            Box::pin(async move {
                if !tenant.exists(connection).await? {
                    return Ok(None);
                }
                let sql = connection.sql();
                if let Some(first) = put.first() {
                    let values = values![first.updated_at_ms, as_json(put)];
                    connection.tenant(tenant.key, sql.put_learner_courses, values).run().await?;
                }
                let deleted = match delete.is_empty() {
                    true => 0,
                    false => {
                        let values = values![pairs_as_json(delete)];
                        connection.tenant(tenant.key, sql.delete_learner_courses, values).run().await?
                    }
                };
                audit::append(connection, audit).await?;
                Ok(Some(deleted))
            })
        })
    }

    fn delete_learner<'a>(&'a self, within: Within<'a>, user: &'a str, audit: AuditDraft) -> Stored<'a, u64> {
        let arguments = (TenantKey::within(within), user.to_owned(), audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, user, audit)| {
            Box::pin(async move {
                let deleted = connection.tenant(*tenant, DELETE_LEARNER, values![user]).run().await?;
                if deleted > 0 {
                    audit::append(connection, audit).await?;
                }
                Ok(deleted)
            })
        })
    }
}

/// Puts what the caller has of these courses into them.
pub(crate) async fn apply_learner<C: EngineQueries>(
    connection: &C,
    scope: &Scope,
    courses: &mut [Course],
) -> Result<(), C::Failure> {
    if courses.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = courses.iter().map(|course| course.id).collect();
    let own = connection.user(scope, connection.sql().courses_of_learner, values![ids]).all(learner_course).await?;
    for one in own {
        courses.iter_mut().filter(|course| course.id == one.course_id).for_each(|course| one.apply(course));
    }
    Ok(())
}

/// What a learner has, from the columns user_id, course_id, status, progress, is_eligible, in_playlist, updated_at.
fn learner_course(row: &dyn SqlRow) -> Result<LearnerCourse, StoreError> {
    Ok(LearnerCourse {
        user: row.get(0)?,
        course_id: row.get(1)?,
        status: row.optional(2)?,
        progress: row.optional(3)?,
        is_eligible: row.optional(4)?,
        in_playlist: row.optional(5)?,
        updated_at_ms: row.get(6)?,
    })
}

/// An array as [`crate::SqlStatements::put_learner_courses`] reads it.
fn as_json(courses: &[LearnerCourse]) -> String {
    let object = |one: &LearnerCourse| {
        json!({
            "user": one.user,
            "course_id": one.course_id,
            "status": one.status,
            "progress": one.progress,
            "is_eligible": one.is_eligible,
            "in_playlist": one.in_playlist,
        })
    };
    courses.iter().map(object).collect::<Value>().to_string()
}

fn pairs_as_json(pairs: &[(String, i64)]) -> String {
    pairs.iter().map(|(user, id)| json!({"user": user, "course_id": id})).collect::<Value>().to_string()
}
