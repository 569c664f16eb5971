//! A page of recommended courses, the same for the model and for a client that fetches further pages.

use amalgam_core::store::{Course, CoursePage};
use amalgam_knowledge::search;
use amalgam_protocol::Writer;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The path of the pages.
pub const PATH: &str = "/api/v2/course-recommendations/";
/// The default number of courses on a page.
pub const PAGE_SIZE: u64 = 5;
/// The maximum number of courses on a page.
pub const MAX_PAGE_SIZE: u64 = 50;
/// The maximum length of a query, in characters.
pub const MAX_QUERY_CHARS: usize = 500;
/// The maximum page number.
const MAX_PAGE: u64 = 1_000_000;

/// Characters that a URL query may contain unescaped.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A search for courses, and the requested page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CourseQuery {
    query: String,
    page: u64,
    page_size: u64,
}

impl CourseQuery {
    /// A question in plain language, a page number from 1, and the page size; values out of bounds are clamped.
    pub fn new(query: &str, page: Option<u64>, page_size: Option<u64>) -> Self {
        Self {
            query: query.trim().chars().take(MAX_QUERY_CHARS).collect(),
            page: page.unwrap_or(1).clamp(1, MAX_PAGE),
            page_size: page_size.unwrap_or(PAGE_SIZE).clamp(1, MAX_PAGE_SIZE),
        }
    }

    /// The search terms.
    pub fn words(&self) -> Vec<String> {
        search::words(&self.query)
    }

    /// The page number, from 1.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// The number of courses before the page.
    pub fn offset(&self) -> u64 {
        (self.page - 1) * self.page_size
    }

    /// The maximum number of courses on the page.
    pub fn limit(&self) -> usize {
        usize::try_from(self.page_size).unwrap_or(usize::MAX)
    }

    /// Writes the page as an object: the total count, the links to the neighbouring pages, and the courses.
    ///
    /// `base_url` is the public URL of this server, without a trailing slash.
    pub fn write(&self, writer: &mut Writer, base_url: &str, found: &CoursePage) {
        let pages = found.count.div_ceil(self.page_size);
        writer.object(|writer| {
            writer.key("count").number(found.count);
            let next = (self.page < pages).then(|| self.url(base_url, self.page + 1));
            write_text(writer.key("next"), next.as_deref());
            // The page before one beyond the end is the last existing page.
            let previous = (self.page > 1).then(|| self.url(base_url, (self.page - 1).min(pages.max(1))));
            write_text(writer.key("previous"), previous.as_deref());
            writer.key("results").array(|writer| found.courses.iter().for_each(|course| write_card(writer, course)));
        });
    }

    fn url(&self, base_url: &str, page: u64) -> String {
        let base_url = base_url.trim_end_matches('/');
        let query = utf8_percent_encode(&self.query, PLAIN);
        format!("{base_url}{PATH}?q={query}&page={page}&page_size={}", self.page_size)
    }
}

/// The summary of a course, as a card shows it.
fn write_card(writer: &mut Writer, course: &Course) {
    writer.object(|writer| {
        write_integer(writer.key("id"), course.id);
        writer.key("title").string(&course.title);
        writer.key("description").string(&course.description);
        write_text(writer.key("url"), course.url.as_deref());
        writer.key("type").string(&course.kind);
        write_text(writer.key("status"), course.status.as_deref());
        write_integer(writer.key("progress"), course.progress);
        writer.key("is_eligible").bool(course.is_eligible);
        writer.key("in_playlist").bool(course.in_playlist);
    });
}

/// Writes all details of a course as an object.
pub fn write_detail(writer: &mut Writer, course: &Course) {
    writer.object(|writer| {
        write_integer(writer.key("id"), course.id);
        writer.key("title").string(&course.title);
        writer.key("description").string(&course.description);
        writer.key("modality").string(&course.modality);
        write_text(writer.key("status"), course.status.as_deref());
        writer.key("content_in_sequence").bool(course.content_in_sequence);
        write_integer(writer.key("min_percentage_finish"), course.min_percentage_finish);
        writer.key("tags").array(|writer| course.tags.iter().for_each(|tag| writer.string(tag)));
    });
}

fn write_integer(writer: &mut Writer, number: i64) {
    writer.valid(number.to_string().as_bytes());
}

fn write_text(writer: &mut Writer, text: Option<&str>) {
    match text {
        Some(text) => writer.string(text),
        None => writer.null(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn course(id: i64) -> Course {
        Course {
            id,
            title: "Evaluasi Return on Investment".to_owned(),
            description: "Mengukur hasil.".to_owned(),
            modality: "Learn".to_owned(),
            kind: "Course".to_owned(),
            status: None,
            content_in_sequence: true,
            min_percentage_finish: 80,
            tags: vec!["evaluasi".to_owned()],
            assets: Vec::new(),
            url: Some("https://courses.example.com/885".to_owned()),
            progress: 0,
            is_eligible: true,
            in_playlist: false,
            active: true,
        }
    }

    fn written(wanted: &CourseQuery, count: u64, courses: Vec<Course>) -> Value {
        let mut writer = Writer::default();
        wanted.write(&mut writer, "https://api.example.com/", &CoursePage { count, courses });
        serde_json::from_slice(writer.bytes()).unwrap()
    }

    #[test]
    fn a_page_has_the_published_fields_in_their_order() {
        // RNCC-38
        let mut writer = Writer::default();
        let page = CoursePage { count: 43, courses: vec![course(885), Course { url: None, ..course(886) }] };
        CourseQuery::new("leadership", None, None).write(&mut writer, "http://127.0.0.1:8080", &page);
        let expected = concat!(
            r#"{"count":43,"next":"http://127.0.0.1:8080/api/v2/course-recommendations/?q=leadership&page=2&page_size=5","#,
            r#""previous":null,"results":[{"id":885,"title":"Evaluasi Return on Investment","description":"Mengukur hasil.","#,
            r#""url":"https://courses.example.com/885","type":"Course","status":null,"progress":0,"is_eligible":true,"#,
            r#""in_playlist":false},{"id":886,"title":"Evaluasi Return on Investment","description":"Mengukur hasil.","#,
            r#""url":null,"type":"Course","status":null,"progress":0,"is_eligible":true,"in_playlist":false}]}"#,
        );
        assert_eq!(String::from_utf8_lossy(writer.bytes()), expected);
    }

    #[test]
    fn neighbours_are_null_at_the_ends() {
        let url =
            |page: u64| json!(format!("https://api.example.com{PATH}?q=a%20%26%20b%2F%C3%A9&page={page}&page_size=2"));
        for (page, count, previous, next) in [
            (1, 0, Value::Null, Value::Null),
            (1, 2, Value::Null, Value::Null),
            (1, 3, Value::Null, url(2)),
            (2, 3, url(1), Value::Null),
            (2, 5, url(1), url(3)),
            // Beyond the end.
            (9, 5, url(3), Value::Null),
            (9, 0, url(1), Value::Null),
        ] {
            let page = written(&CourseQuery::new(" a & b/é ", Some(page), Some(2)), count, Vec::new());
            assert_eq!([&page["previous"], &page["next"]], [&previous, &next]);
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_brought_back() {
        let wanted = CourseQuery::new(&"é".repeat(10_000), Some(0), Some(0));
        assert_eq!((wanted.offset(), wanted.limit(), wanted.query.chars().count()), (0, 1, MAX_QUERY_CHARS));
        let wanted = CourseQuery::new("", Some(u64::MAX), Some(u64::MAX));
        assert_eq!((wanted.offset(), wanted.limit()), (49_999_950, 50));
        assert_eq!(CourseQuery::new("x", Some(3), None).offset(), 10);
    }

    #[test]
    fn a_detail_has_the_published_fields() {
        // RNCC-37
        let mut writer = Writer::default();
        write_detail(&mut writer, &Course { status: Some("Started".to_owned()), ..course(28) });
        let expected = concat!(
            r#"{"id":28,"title":"Evaluasi Return on Investment","description":"Mengukur hasil.","modality":"Learn","#,
            r#""status":"Started","content_in_sequence":true,"min_percentage_finish":80,"tags":["evaluasi"]}"#,
        );
        assert_eq!(String::from_utf8_lossy(writer.bytes()), expected);
    }
}
