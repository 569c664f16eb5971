//! The catalogue of courses, and what is found in it.

use std::collections::HashMap;

use amalgam_core::{
    Scope,
    store::{Course, CoursePage, CourseStore, Imported, Stored, Within},
};
use amalgam_protocol::{Json, Writer};
use rusqlite::Row;

use super::{
    Sqlite,
    agents::Whose,
    failure::Failure,
    query::{Database, Tenant, int, most, text, uint},
    sql,
};
use crate::assistant::{self, CourseWords};

impl CourseStore for Sqlite {
    fn put_courses<'a>(
        &'a self,
        within: Within<'a>,
        courses: Vec<Course>,
        now_ms: u64,
    ) -> Stored<'a, Option<Imported>> {
        let whose = Whose::of(within);
        self.change(move |transaction| {
            let database = transaction.database;
            if !whose.exists(database)? {
                return Ok(None);
            }
            put(database, whose.tenant, &courses, now_ms).map(Some)
        })
    }

    fn course<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<Course>> {
        let tenant = Tenant::of_caller(scope);
        self.read(move |transaction| {
            let found = transaction.database.tenant(tenant, sql::ANY_COURSE, &[&id])?.first(course)?;
            Ok(found.filter(|course| course.active))
        })
    }

    fn search_courses<'a>(
        &'a self,
        scope: &'a Scope,
        words: &'a [String],
        offset: u64,
        limit: usize,
    ) -> Stored<'a, CoursePage> {
        let tenant = Tenant::of_caller(scope);
        let question = (!words.is_empty()).then(|| Question::new(scope, &assistant::searchable(words)));
        self.read(move |transaction| {
            let (database, limit) = (transaction.database, most(limit));
            // No table has so many rows.
            let offset = i64::try_from(offset).unwrap_or(i64::MAX);
            let (count, courses) = match &question {
                None => (
                    database.tenant(tenant, sql::COUNT_COURSES, &[])?,
                    database.tenant(tenant, sql::COURSES, &[&limit, &offset])?,
                ),
                Some(None) => return Ok(CoursePage { count: 0, courses: Vec::new() }),
                Some(Some(question)) => (
                    database.tenant(tenant, sql::COUNT_FOUND, &[&question.any])?,
                    database.tenant(tenant, sql::FIND_COURSES, &[&question.each.raw().text(), &limit, &offset])?,
                ),
            };
            let count = count.first(|row| uint(row, 0))?.unwrap_or_default();
            Ok(CoursePage { count, courses: courses.all(course)? })
        })
    }
}

/// What is looked for, in the words of the index.
struct Question {
    /// Any of the words anywhere.
    any: String,
    /// Each word in each of the two places that it can be in, and what it is worth there.
    each: Json,
}

impl Question {
    /// Nothing when there is no word that could be found.
    fn new(scope: &Scope, words: &[&str]) -> Option<Self> {
        if words.is_empty() {
            return None;
        }
        // Letters and digits alone: nothing in a word can end its quotes.
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let own = format!("tenant_id : \"{}\"", scope.tenant_id());
        let any = format!("{own} AND {{strong weak}} : ({})", quoted.join(" OR "));
        let mut writer = Writer::default();
        writer.array(|writer| {
            for word in &quoted {
                for (place, worth) in [("strong", assistant::STRONG), ("weak", 1)] {
                    writer.array(|writer| {
                        writer.string(&format!("{own} AND {place} : {word}"));
                        writer.number(u64::from(worth));
                    });
                }
            }
        });
        Some(Self { any, each: Json::from_writer(writer) })
    }
}

fn put(database: Database<'_>, tenant: Tenant, courses: &[Course], now_ms: u64) -> Result<Imported, Failure> {
    let mut known = HashMap::new();
    for course in courses {
        if !known.contains_key(&course.id)
            && let Some(before) = database.tenant(tenant, sql::ANY_COURSE, &[&course.id])?.first(self::course)?
        {
            known.insert(course.id, before);
        }
    }
    let (imported, changed) = assistant::import(known, courses);
    for course in &changed {
        put_one(database, tenant, course, now_ms)?;
    }
    Ok(imported)
}

fn put_one(database: Database<'_>, tenant: Tenant, course: &Course, now_ms: u64) -> Result<(), Failure> {
    let number: Option<i64> = database
        .tenant(
            tenant,
            sql::PUT_COURSE,
            &[
                &course.id,
                &course.title,
                &course.description,
                &course.modality,
                &course.kind,
                &course.status,
                &course.content_in_sequence,
                &course.min_percentage_finish,
                &assistant::strings_json(&course.tags).raw().text(),
                &assistant::strings_json(&course.assets).raw().text(),
                &course.url,
                &course.progress,
                &course.is_eligible,
                &course.in_playlist,
                &course.active,
                &int(now_ms)?,
            ],
        )?
        .first(|row| Ok(row.get(0)?))?;
    let CourseWords { strong, weak } = CourseWords::of(course);
    database.tenant(tenant, sql::PUT_WORDS, &[&number, &strong.join(" "), &weak.join(" ")])?.run()?;
    Ok(())
}

fn course(row: &Row<'_>) -> Result<Course, Failure> {
    Ok(Course {
        id: row.get(0)?,
        title: row.get(1)?,
        description: row.get(2)?,
        modality: row.get(3)?,
        kind: row.get(4)?,
        status: row.get(5)?,
        content_in_sequence: row.get(6)?,
        min_percentage_finish: row.get(7)?,
        tags: assistant::strings(text(row, 8)?),
        assets: assistant::strings(text(row, 9)?),
        url: row.get(10)?,
        progress: row.get(11)?,
        is_eligible: row.get(12)?,
        in_playlist: row.get(13)?,
        active: row.get(14)?,
    })
}
