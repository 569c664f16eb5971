//! The catalogue of courses, and the words that courses are found by.

use std::collections::HashMap;

use amalgam_core::{
    Scope, StoreError,
    store::{Course, CoursePage, CourseStore, ImportCounts, Stored, Within},
};
use amalgam_knowledge::search::words;

use crate::{
    SqlStore,
    catalogue::apply_learner,
    engine::{ChangedTenant, EngineQueries, Repeat, SqlConnection, SqlEngine, TenantKey},
    rows,
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    TenantSql COURSE = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND id = $2 AND active";
}

impl<E: SqlEngine> CourseStore for SqlStore<E> {
    fn put_courses<'a>(
        &'a self,
        within: Within<'a>,
        courses: Vec<Course>,
        now_ms: u64,
    ) -> Stored<'a, Option<ImportCounts>> {
        // Not repeatable: a second run would count nothing as new.
        let arguments = (ChangedTenant::of(within), courses, now_ms);
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, courses, now_ms)| {
            Box::pin(async move {
                if !tenant.exists(connection).await? {
                    return Ok(None);
                }
                put(connection, tenant.key, courses, *now_ms).await.map(Some)
            })
        })
    }

    fn course<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<Course>> {
        self.engine.read((scope.clone(), id), |connection, (scope, id)| {
            Box::pin(async move {
                let tenant = TenantKey::of_caller(scope);
                let found = connection.tenant(tenant, COURSE, values![*id]).first(course).await?;
                let mut found: Vec<Course> = found.into_iter().collect();
                apply_learner(connection, scope, &mut found).await?;
                Ok(found.pop())
            })
        })
    }

    fn search_courses<'a>(
        &'a self,
        scope: &'a Scope,
        words: &'a [String],
        offset: u64,
        limit: usize,
    ) -> Stored<'a, CoursePage> {
        search(self, TenantKey::of_caller(scope), Some(scope), words, offset, limit)
    }
}

/// A page of the active courses that have one of the words; with the values of a learner, if there is one.
pub(crate) fn search<'a, E: SqlEngine>(
    store: &'a SqlStore<E>,
    tenant: TenantKey,
    learner: Option<&Scope>,
    words: &[String],
    offset: u64,
    limit: usize,
) -> Stored<'a, CoursePage> {
    let searched = searchable(words);
    if !words.is_empty() && searched.is_empty() {
        return Box::pin(async { Ok(CoursePage { count: 0, courses: Vec::new() }) });
    }
    let arguments = (tenant, learner.cloned(), (!words.is_empty()).then_some(searched), offset, limit);
    store.engine.read(arguments, |connection, (tenant, learner, words, offset, limit)| {
        Box::pin(async move {
            let mut page = connection.find_courses(*tenant, words.as_deref(), *offset, *limit).await?;
            if let Some(learner) = learner {
                apply_learner(connection, learner, &mut page.courses).await?;
            }
            Ok(page)
        })
    })
}

/// Inside a transaction.
pub(crate) async fn put<C: EngineQueries>(
    connection: &C,
    tenant: TenantKey,
    courses: &[Course],
    now_ms: u64,
) -> Result<ImportCounts, C::Failure> {
    // One import into a catalogue at a time: otherwise two imports could both count the same course as new.
    connection.lock(format!("courses {}", tenant.number())).await?;
    let ids: Vec<i64> = courses.iter().map(|course| course.id).collect();
    let known = connection.tenant(tenant, connection.sql().known_courses, values![ids]).all(course).await?;
    let known = known.into_iter().map(|course| (course.id, course)).collect();
    let (imported, changed) = import(known, courses);
    connection.put_courses(tenant, &changed, now_ms).await?;
    Ok(imported)
}

/// Returns the counts of an import, and the courses to write, each once and sorted by id. `known` are the existing
/// courses.
fn import(mut known: HashMap<i64, Course>, courses: &[Course]) -> (ImportCounts, Vec<Course>) {
    let mut imported = ImportCounts::default();
    let mut changed: HashMap<i64, &Course> = HashMap::new();
    for course in courses {
        match known.insert(course.id, course.clone()) {
            Some(before) if before == *course => {
                imported.unchanged += 1;
                continue;
            }
            Some(_) => imported.updated += 1,
            None => imported.created += 1,
        }
        changed.insert(course.id, course);
    }
    let mut changed: Vec<Course> = changed.into_values().cloned().collect();
    changed.sort_by_key(|course| course.id);
    (imported, changed)
}

/// The weight of a word of title or tags, relative to one of the description.
pub const STRONG: u32 = 4;

/// The words that a course is found by.
#[derive(Debug, PartialEq, Eq)]
pub struct CourseWords {
    /// The words of title and tags.
    pub strong: Vec<String>,
    /// The words that only the description has.
    pub weak: Vec<String>,
}

impl CourseWords {
    /// The words of a course.
    pub fn of(course: &Course) -> Self {
        let strong = words(&[course.title.as_str(), " ", &course.tags.join(" ")].concat());
        let mut weak = words(&course.description);
        weak.retain(|word| !strong.contains(word));
        Self { strong, weak }
    }
}

/// The words of a query that can be in the index: only letters and digits, each word once.
fn searchable(words: &[String]) -> Vec<String> {
    let mut searched: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        let is_word = !word.is_empty() && word.chars().all(char::is_alphanumeric);
        if is_word && !searched.contains(word) {
            searched.push(word.clone());
        }
    }
    searched
}

/// A course from the columns id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish,
/// tags, assets, url, progress, is_eligible, in_playlist, active.
pub fn course(row: &dyn SqlRow) -> Result<Course, StoreError> {
    Ok(Course {
        id: row.get(0)?,
        title: row.get(1)?,
        description: row.get(2)?,
        modality: row.get(3)?,
        kind: row.get(4)?,
        status: row.optional(5)?,
        content_in_sequence: row.get(6)?,
        min_percentage_finish: row.get(7)?,
        tags: rows::strings(row.get(8)?),
        assets: rows::strings(row.get(9)?),
        url: row.optional(10)?,
        progress: row.get(11)?,
        is_eligible: row.get(12)?,
        in_playlist: row.get(13)?,
        active: row.get(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(id: i64, title: &str) -> Course {
        Course {
            id,
            title: title.into(),
            description: "Python from the start, with exercises.".into(),
            modality: "Learn".into(),
            kind: "Course".into(),
            status: None,
            content_in_sequence: false,
            min_percentage_finish: 100,
            tags: vec!["data".into()],
            assets: Vec::new(),
            url: None,
            progress: 0,
            is_eligible: true,
            in_playlist: false,
            active: true,
        }
    }

    #[test]
    fn an_import_counts_every_line_and_writes_every_course_once() {
        let known = HashMap::from([(1, course(1, "one")), (2, course(2, "two"))]);
        let lines = [course(3, "three"), course(1, "one"), course(2, "second"), course(3, "third"), course(3, "third")];
        let (imported, changed) = import(known, &lines);
        assert_eq!(imported, ImportCounts { created: 1, updated: 2, unchanged: 2 });
        assert_eq!(changed, [course(2, "second"), course(3, "third")]);
    }

    #[test]
    fn a_word_is_as_strong_as_the_strongest_place_that_it_is_in() {
        let found = CourseWords::of(&course(1, "Python basics"));
        assert!(found.strong.contains(&"python".to_owned()) && found.strong.contains(&"data".to_owned()));
        assert!(!found.weak.contains(&"python".to_owned()));
        assert!(!found.weak.is_empty());
    }

    #[test]
    fn what_is_no_word_is_not_searched_for() {
        let asked = ["a", "", "a", "b\"c", "' | x", "ö9"].map(String::from);
        assert_eq!(searchable(&asked), ["a", "ö9"]);
    }
}
