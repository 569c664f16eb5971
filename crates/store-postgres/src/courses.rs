//! Writes and searches the catalogue of courses.

use std::fmt::Write as _;

use amalgam_core::store::{Course, CoursePage};
use amalgam_protocol::Json;
use amalgam_store::{
    TenantKey,
    courses::{CourseWords, STRONG, course},
    rows, statements,
};

use super::{
    batch::columns::{column, text_of},
    connection::{Connection, Param, PostgresFailure},
    job::{most, signed, unsigned},
    values::PostgresRow,
};

statements! {
    TenantSql PUT_COURSES = "
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
    TenantSql COURSES = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND active ORDER BY id LIMIT $2 OFFSET $3";
    TenantSql COUNT_COURSES = "SELECT count(*) FROM courses WHERE tenant_id = $1 AND active";
    /// `$2` also contains the tenant's word, so that the index skips the courses of other tenants. The weight of a word
    /// depends on its place, and sums are rounded so that equal ones compare equal: only a course's own words decide
    /// its rank.
    TenantSql FIND_COURSES = "
        SELECT id, title, description, modality, kind, status, content_in_sequence, min_percentage_finish, tags, assets,
            url, progress, is_eligible, in_playlist, active
        FROM courses WHERE tenant_id = $1 AND active AND words @@ $2::text::tsquery
        ORDER BY round(ts_rank(ARRAY[$4, $4, $4, 1]::real[], words, $3::text::tsquery)::numeric, 4) DESC, id
        LIMIT $5 OFFSET $6";
    TenantSql COUNT_FOUND = "
        SELECT count(*) FROM courses WHERE tenant_id = $1 AND active AND words @@ $2::text::tsquery";
}

/// The number of courses in one statement, at most.
const AT_ONCE: usize = 500;

/// Adds or replaces courses with their words.
pub(super) async fn put(
    connection: &Connection,
    tenant: TenantKey,
    courses: &[Course],
    now_ms: u64,
) -> Result<(), PostgresFailure> {
    for some in courses.chunks(AT_ONCE) {
        put_some(connection, tenant.number(), some, now_ms).await?;
    }
    Ok(())
}

async fn put_some(
    connection: &Connection,
    tenant_id: i64,
    courses: &[Course],
    now_ms: u64,
) -> Result<(), PostgresFailure> {
    let tags: Vec<Json> = column(courses, |course| rows::strings_json(&course.tags));
    let assets: Vec<Json> = column(courses, |course| rows::strings_json(&course.assets));
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
    connection.execute(PUT_COURSES, &params).await.map(drop)
}

/// A page of the active courses, or of those that have one of the words, the best first.
pub(super) async fn find(
    connection: &Connection,
    tenant: TenantKey,
    words: Option<&[String]>,
    offset: u64,
    limit: usize,
) -> Result<CoursePage, PostgresFailure> {
    let (tenant_id, limit, offset) = (tenant.number(), most(limit), signed(offset));
    let (count, found) = match words {
        None => (
            connection.row(COUNT_COURSES, &[&tenant_id]).await?,
            connection.rows(COURSES, &[&tenant_id, &limit, &offset]).await?,
        ),
        Some(words) => {
            let any = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" | ");
            let own = format!("{} & ({any})", whose(tenant_id));
            let params: [Param<'_>; 6] = [&tenant_id, &own, &any, &WEAK, &limit, &offset];
            (connection.row(COUNT_FOUND, &[&tenant_id, &own]).await?, connection.rows(FIND_COURSES, &params).await?)
        }
    };
    let count = count.map(|row| row.try_get::<_, i64>(0)).transpose()?.unwrap_or_default();
    let courses = found.iter().map(|row| Ok(course(&PostgresRow(row))?)).collect::<Result<_, PostgresFailure>>()?;
    Ok(CoursePage { count: unsigned(count), courses })
}

/// The weight of a word of the description, relative to one of title or tags.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
const WEAK: f32 = 1.0 / STRONG as f32;

/// A word in the form of vectors and queries. Words have only letters and digits, so a word cannot end its quotes.
fn quoted(word: &str) -> String {
    format!("'{word}'")
}

/// The word of a tenant's courses. No text contains it, because words have only letters and digits.
fn whose(tenant_id: i64) -> String {
    format!("'#{tenant_id}'")
}

/// The words of a course as a vector: each with its position, without which it has no weight.
fn vector(tenant_id: i64, course: &Course) -> String {
    let CourseWords { strong, weak } = CourseWords::of(course);
    let words = strong.iter().map(|word| (word, "A")).chain(weak.iter().map(|word| (word, "")));
    let mut vector = whose(tenant_id);
    for (place, (word, weight)) in words.enumerate() {
        // All later positions count as the last one.
        let place = (place + 1).min(16_383);
        write!(vector, " {}:{place}{weight}", quoted(word)).expect("a String takes all text");
    }
    vector
}
