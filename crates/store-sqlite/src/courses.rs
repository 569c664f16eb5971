//! Writes and searches the catalogue of courses.

use amalgam_core::store::{Course, CoursePage};
use amalgam_protocol::{Json, Writer};
use amalgam_store::{
    TenantKey,
    courses::{CourseWords, STRONG, course},
    rows, statements,
};

use super::{
    connection::SqliteRow,
    failure::SqliteFailure,
    query::{Database, int, most, uint},
};

statements! {
    TenantSql PUT_COURSE = "
        INSERT INTO courses (tenant_id, id, title, description, modality, kind, status, content_in_sequence,
            min_percentage_finish, tags, assets, url, progress, is_eligible, in_playlist, active, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
        ON CONFLICT (tenant_id, id) DO UPDATE SET title = excluded.title, description = excluded.description,
            modality = excluded.modality, kind = excluded.kind, status = excluded.status,
            content_in_sequence = excluded.content_in_sequence,
            min_percentage_finish = excluded.min_percentage_finish, tags = excluded.tags, assets = excluded.assets,
            url = excluded.url, progress = excluded.progress, is_eligible = excluded.is_eligible,
            in_playlist = excluded.in_playlist, active = excluded.active, updated_at = excluded.updated_at
        RETURNING number";
    TenantSql PUT_WORDS = "REPLACE INTO course_words (tenant_id, rowid, strong, weak) VALUES (?1, ?2, ?3, ?4)";
    TenantSql COURSES = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = ?1 AND active = 1 ORDER BY id LIMIT ?2 OFFSET ?3";
    TenantSql COUNT_COURSES = "SELECT COUNT(*) FROM courses WHERE tenant_id = ?1 AND active = 1";
    /// `?2` is an array of pairs: a query of the index, and its weight. The weights of all matching queries are added,
    /// so that only a course's own words, and none of other tenants, decide its rank.
    TenantSql FIND_COURSES = "
        SELECT courses.id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags,
            assets, url, progress, is_eligible, in_playlist, active
        FROM (
            SELECT found.number AS number, found.id AS id, SUM(wanted.value ->> 1) AS worth
            FROM json_each(?2) AS wanted CROSS JOIN course_words CROSS JOIN courses AS found
            WHERE course_words MATCH (wanted.value ->> 0) AND found.number = course_words.rowid
                AND found.tenant_id = ?1 AND found.active = 1
            GROUP BY found.number ORDER BY worth DESC, found.id LIMIT ?3 OFFSET ?4
        ) AS best CROSS JOIN courses ON courses.number = best.number
        ORDER BY worth DESC, best.id";
    TenantSql COUNT_FOUND = "
        SELECT COUNT(*) FROM course_words CROSS JOIN courses
        WHERE course_words MATCH ?2 AND courses.number = course_words.rowid
            AND courses.tenant_id = ?1 AND active = 1";
}

/// Adds or replaces courses and their words.
pub(super) fn put(
    database: Database<'_>,
    tenant: TenantKey,
    courses: &[Course],
    now_ms: u64,
) -> Result<(), SqliteFailure> {
    courses.iter().try_for_each(|course| put_one(database, tenant, course, now_ms))
}

fn put_one(database: Database<'_>, tenant: TenantKey, course: &Course, now_ms: u64) -> Result<(), SqliteFailure> {
    let number: Option<i64> = database
        .tenant(
            tenant,
            PUT_COURSE,
            &[
                &course.id,
                &course.title,
                &course.description,
                &course.modality,
                &course.kind,
                &course.status,
                &course.content_in_sequence,
                &course.min_percentage_finish,
                &rows::strings_json(&course.tags).raw().text(),
                &rows::strings_json(&course.assets).raw().text(),
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
    database.tenant(tenant, PUT_WORDS, &[&number, &strong.join(" "), &weak.join(" ")])?.run()?;
    Ok(())
}

/// A page of the active courses, or of those that have one of the words, the best first.
pub(super) fn find(
    database: Database<'_>,
    tenant: TenantKey,
    words: Option<&[String]>,
    offset: u64,
    limit: usize,
) -> Result<CoursePage, SqliteFailure> {
    // No table has more rows than an i64 can count.
    let (limit, offset) = (most(limit), i64::try_from(offset).unwrap_or(i64::MAX));
    let (count, courses) = match words {
        None => (database.tenant(tenant, COUNT_COURSES, &[])?, database.tenant(tenant, COURSES, &[&limit, &offset])?),
        Some(words) => {
            let question = CourseQuestion::new(tenant, words);
            (
                database.tenant(tenant, COUNT_FOUND, &[&question.any])?,
                database.tenant(tenant, FIND_COURSES, &[&question.each.raw().text(), &limit, &offset])?,
            )
        }
    };
    let count = count.first(|row| uint(row, 0))?.unwrap_or_default();
    Ok(CoursePage { count, courses: courses.all(|row| Ok(course(&SqliteRow(row))?))? })
}

/// A search in the syntax of the full-text index.
struct CourseQuestion {
    /// Any of the words anywhere.
    any: String,
    /// A query for each word in each of its two places, with the weight there.
    each: Json,
}

impl CourseQuestion {
    fn new(tenant: TenantKey, words: &[String]) -> Self {
        // Words have only letters and digits, so a word cannot end its quotes.
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let own = format!("tenant_id : \"{}\"", tenant.number());
        let any = format!("{own} AND {{strong weak}} : ({})", quoted.join(" OR "));
        let mut writer = Writer::default();
        writer.array(|writer| {
            for word in &quoted {
                for (place, worth) in [("strong", STRONG), ("weak", 1)] {
                    writer.array(|writer| {
                        writer.string(&format!("{own} AND {place} : {word}"));
                        writer.number(u64::from(worth));
                    });
                }
            }
        });
        Self { any, each: Json::from_writer(writer) }
    }
}
