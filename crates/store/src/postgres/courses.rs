//! The catalogue of courses, and what is found in it.

use std::{collections::HashMap, fmt::Write as _};

use amalgam_core::{
    Scope,
    store::{Course, CoursePage, CourseStore, Imported, Stored, Within},
};
use amalgam_protocol::Json;
use tokio_postgres::Row;

use super::{
    Postgres, agents,
    batch::columns::{column, text_of},
    connection::{Connection, Failure, Param},
    job::{signed, unsigned},
    pool::Lease,
    sql::statements,
};
use crate::assistant::{self, CourseWords};

statements! {
    /// One import into a catalogue at a time: else two could take the same course for a new one.
    Operator LOCK_CATALOGUE = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    Admin KNOWN = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND id = ANY ($2)";
    Admin PUT_COURSES = "
        INSERT INTO courses (tenant_id, id, title, description, modality, kind, status, content_in_sequence,
            min_percentage_finish, tags, assets, url, progress, is_eligible, in_playlist, active, updated_at, words)
        SELECT $1, new.id, new.title, new.description, new.modality, new.kind, new.status, new.content_in_sequence,
            new.min_percentage_finish, new.tags, new.assets, new.url, new.progress, new.is_eligible, new.in_playlist,
            new.active, $2, new.words::tsvector
        FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::boolean[],
                $10::bigint[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::boolean[], $16::boolean[],
                $17::boolean[], $18::text[])
            AS new (id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags,
                assets, url, progress, is_eligible, in_playlist, active, words)
        ON CONFLICT (tenant_id, id) DO UPDATE SET title = excluded.title, description = excluded.description,
            modality = excluded.modality, kind = excluded.kind, status = excluded.status,
            content_in_sequence = excluded.content_in_sequence,
            min_percentage_finish = excluded.min_percentage_finish, tags = excluded.tags, assets = excluded.assets,
            url = excluded.url, progress = excluded.progress, is_eligible = excluded.is_eligible,
            in_playlist = excluded.in_playlist, active = excluded.active, updated_at = excluded.updated_at,
            words = excluded.words";
    Admin COURSE = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND id = $2 AND active";
    Admin COURSES = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND active ORDER BY id LIMIT $2 OFFSET $3";
    Admin COUNT_COURSES = "SELECT count(*) FROM courses WHERE tenant_id = $1 AND active";
    /// `$2` also says whose course it is, so that the index leaves those of others out. A word counts as much as its place
    /// does, and sums that should be the same are made so: a course's own words alone say where it stands.
    Admin FIND_COURSES = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND active AND words @@ $2::text::tsquery
        ORDER BY round(ts_rank(ARRAY[$4, $4, $4, 1]::real[], words, $3::text::tsquery)::numeric, 4) DESC, id
        LIMIT $5 OFFSET $6";
    Admin COUNT_FOUND = "
        SELECT count(*) FROM courses WHERE tenant_id = $1 AND active AND words @@ $2::text::tsquery";
}

/// So many go in one statement.
const AT_ONCE: usize = 500;

impl CourseStore for Postgres {
    fn put_courses<'a>(
        &'a self,
        within: Within<'a>,
        courses: Vec<Course>,
        now_ms: u64,
    ) -> Stored<'a, Option<Imported>> {
        Box::pin(async move {
            let courses = &courses;
            // Once: a second time nothing would be new any more.
            let put = self.pool.once(move |mut connection: Lease| async move {
                if !agents::exists(&connection, within).await? {
                    return Ok(None);
                }
                connection.begin().await?;
                let put = put(&connection, within.tenant_id(), courses, now_ms).await;
                connection.end(put).await.map(Some)
            });
            put.await
        })
    }

    fn course<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<Course>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            connection.row(&COURSE, &[&scope.tenant_id(), &id]).await?.as_ref().map(course_from).transpose()
        }))
    }

    fn search_courses<'a>(
        &'a self,
        scope: &'a Scope,
        words: &'a [String],
        offset: u64,
        limit: usize,
    ) -> Stored<'a, CoursePage> {
        Box::pin(async move {
            let (all, wanted) = (words.is_empty(), assistant::searchable(words));
            if !all && wanted.is_empty() {
                return Ok(CoursePage { count: 0, courses: Vec::new() });
            }
            let quoted: Vec<String> = wanted.iter().map(|word| quoted(word)).collect();
            let any = &quoted.join(" | ");
            let own = &format!("{} & ({any})", whose(scope.tenant_id()));
            let found = self.pool.repeatably(move |connection: Lease| async move {
                let (tenant_id, limit, offset) =
                    (scope.tenant_id(), i64::try_from(limit).unwrap_or(i64::MAX), signed(offset));
                let (count, found) = if all {
                    let count = connection.row(&COUNT_COURSES, &[&tenant_id]).await?;
                    (count, connection.rows(&COURSES, &[&tenant_id, &limit, &offset]).await?)
                } else {
                    let count = connection.row(&COUNT_FOUND, &[&tenant_id, own]).await?;
                    let params: [Param<'_>; 6] = [&tenant_id, own, any, &WEAK, &limit, &offset];
                    (count, connection.rows(&FIND_COURSES, &params).await?)
                };
                let count = count.map(|row| row.try_get::<_, i64>(0)).transpose()?.unwrap_or_default();
                let courses = found.iter().map(course_from).collect::<Result<_, _>>()?;
                Ok(CoursePage { count: unsigned(count), courses })
            });
            found.await
        })
    }
}

/// What a word of the description is worth, where one of title or tags is worth 1.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
const WEAK: f32 = 1.0 / assistant::STRONG as f32;

/// A word as it stands in a vector and in a question. Words are letters and digits alone: nothing in them ends the quotes.
fn quoted(word: &str) -> String {
    format!("'{word}'")
}

/// The word that says whose a course is; no text has it, because words are letters and digits alone.
fn whose(tenant_id: i64) -> String {
    format!("'#{tenant_id}'")
}

/// The words of a course as a vector: each with its place, without which it has no weight.
fn vector(tenant_id: i64, course: &Course) -> String {
    let CourseWords { strong, weak } = CourseWords::of(course);
    let words = strong.iter().map(|word| (word, "A")).chain(weak.iter().map(|word| (word, "")));
    let mut vector = whose(tenant_id);
    for (place, (word, weight)) in words.enumerate() {
        // Later places are all the last one.
        let place = (place + 1).min(16_383);
        write!(vector, " {}:{place}{weight}", quoted(word)).expect("a String takes all text");
    }
    vector
}

async fn put(connection: &Connection, tenant_id: i64, courses: &[Course], now_ms: u64) -> Result<Imported, Failure> {
    connection.row(&LOCK_CATALOGUE, &[&format!("courses {tenant_id}")]).await?;
    let ids: Vec<i64> = courses.iter().map(|course| course.id).collect();
    let mut known = HashMap::new();
    for row in connection.rows(&KNOWN, &[&tenant_id, &ids]).await? {
        let course = course_from(&row)?;
        known.insert(course.id, course);
    }
    let (imported, changed) = assistant::import(known, courses);
    for some in changed.chunks(AT_ONCE) {
        put_some(connection, tenant_id, some, now_ms).await?;
    }
    Ok(imported)
}

async fn put_some(connection: &Connection, tenant_id: i64, courses: &[Course], now_ms: u64) -> Result<(), Failure> {
    let tags: Vec<Json> = column(courses, |course| assistant::strings_json(&course.tags));
    let assets: Vec<Json> = column(courses, |course| assistant::strings_json(&course.assets));
    let params: [Param<'_>; 18] = [
        &tenant_id,
        &signed(now_ms),
        &column(courses, |course| course.id),
        &column(courses, |course| course.title.as_str()),
        &column(courses, |course| course.description.as_str()),
        &column(courses, |course| course.modality.as_str()),
        &column(courses, |course| course.kind.as_str()),
        &column(courses, |course| course.status.as_deref()),
        &column(courses, |course| course.content_in_sequence),
        &column(courses, |course| course.min_percentage_finish),
        &column(&tags, text_of),
        &column(&assets, text_of),
        &column(courses, |course| course.url.as_deref()),
        &column(courses, |course| course.progress),
        &column(courses, |course| course.is_eligible),
        &column(courses, |course| course.in_playlist),
        &column(courses, |course| course.active),
        &column(courses, |course| vector(tenant_id, course)),
    ];
    connection.execute(&PUT_COURSES, &params).await.map(drop)
}

fn course_from(row: &Row) -> Result<Course, Failure> {
    Ok(Course {
        id: row.try_get(0)?,
        title: row.try_get(1)?,
        description: row.try_get(2)?,
        modality: row.try_get(3)?,
        kind: row.try_get(4)?,
        status: row.try_get(5)?,
        content_in_sequence: row.try_get(6)?,
        min_percentage_finish: row.try_get(7)?,
        tags: assistant::strings(row.try_get(8)?),
        assets: assistant::strings(row.try_get(9)?),
        url: row.try_get(10)?,
        progress: row.try_get(11)?,
        is_eligible: row.try_get(12)?,
        in_playlist: row.try_get(13)?,
        active: row.try_get(14)?,
    })
}
