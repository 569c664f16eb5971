use amalgam_assistant::catalog::TOOLS;
use amalgam_core::{
    ArgumentCheck as _, Rights, Scope, StoreError, TenantState, ToolCall, ToolError,
    store::{Course, CoursePage, ImportCounts, Stored, Within},
};
use amalgam_protocol::Raw;
use serde_json::{Value, json};

use super::*;
use crate::{Schema, knowledge::library::Library};

struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> u64 {
        43_200_000
    }
}

/// Courses by tenant; a search finds those with a word in their title.
#[derive(Default)]
struct Shelf {
    courses: Vec<(i64, Course)>,
    broken: bool,
}

impl CourseStore for Shelf {
    fn put_courses<'a>(
        &'a self,
        _within: Within<'a>,
        _courses: Vec<Course>,
        _now_ms: u64,
    ) -> Stored<'a, Option<ImportCounts>> {
        // The tests store nothing on it.
        Box::pin(async { Ok(None) })
    }

    fn course<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<Course>> {
        Box::pin(async move {
            if self.broken {
                return Err(StoreError::Unavailable("no route to 10.0.0.7".to_owned()));
            }
            let found = self.courses.iter().find(|(tenant, course)| *tenant == scope.tenant_id() && course.id == id);
            Ok(found.map(|(_, course)| course.clone()))
        })
    }

    fn search_courses<'a>(
        &'a self,
        scope: &'a Scope,
        words: &'a [String],
        offset: u64,
        limit: usize,
    ) -> Stored<'a, CoursePage> {
        Box::pin(async move {
            if self.broken {
                return Err(StoreError::Busy);
            }
            let found: Vec<&Course> = self
                .courses
                .iter()
                .filter(|(tenant, course)| {
                    let own = amalgam_knowledge::search::words(&course.title);
                    *tenant == scope.tenant_id() && (words.is_empty() || words.iter().any(|word| own.contains(word)))
                })
                .map(|(_, course)| course)
                .collect();
            let page = found.iter().skip(offset as usize).take(limit).map(|course| (*course).clone()).collect();
            Ok(CoursePage { count: found.len() as u64, courses: page })
        })
    }
}

fn course(id: i64, title: &str) -> Course {
    Course {
        id,
        title: title.to_owned(),
        description: "About it.".to_owned(),
        modality: "Learn".to_owned(),
        kind: "Course".to_owned(),
        status: None,
        content_in_sequence: false,
        min_percentage_finish: 100,
        tags: vec!["leadership".to_owned()],
        assets: Vec::new(),
        url: None,
        progress: 0,
        is_eligible: true,
        in_playlist: false,
        active: true,
    }
}

fn tools(shelf: Shelf) -> Vec<Builtin> {
    let courses = CoursePorts { store: Arc::new(shelf), base_url: "http://127.0.0.1:8080".to_owned() };
    builtins(&Ports { clock: Arc::new(Noon), courses: Some(courses), knowledge: Some(Library::default().ports()) })
}

fn shelf() -> Shelf {
    let mut courses: Vec<(i64, Course)> = (1..=7).map(|id| (1, course(id, &format!("Leadership {id}")))).collect();
    courses.push((1, Course { status: Some("Started".to_owned()), ..course(28, "Kepemimpinan Dasar") }));
    courses.push((2, course(29, "Leadership elsewhere")));
    Shelf { courses, broken: false }
}

#[expect(clippy::disallowed_methods, reason = "the test is the authentication")]
async fn run(shelf: Shelf, name: &str, arguments: &str) -> Result<Value, ToolError> {
    let tools = tools(shelf);
    let tool = tools.iter().find(|tool| tool.name == name).unwrap();
    let scope = Scope::authenticated(1, "ana", TenantState::Stored, Rights::USE);
    let arguments = Raw::parse(arguments.as_bytes()).unwrap();
    let output = tool.run.run(ToolCall { scope: &scope, call_id: "call_1", key: "k", arguments, trace: None }).await?;
    Ok(serde_json::from_slice(output.output.bytes()).unwrap())
}

#[tokio::test]
async fn a_course_is_told_with_its_published_fields() {
    // RNCC-37
    let expected = json!({"course": {
        "id": 28, "title": "Kepemimpinan Dasar", "description": "About it.", "modality": "Learn", "status": "Started",
        "content_in_sequence": false, "min_percentage_finish": 100, "tags": ["leadership"],
    }});
    for arguments in [r#"{"course_id": 28}"#, r#"{"course_id": "28"}"#] {
        assert_eq!(run(shelf(), "get_course_detail", arguments).await, Ok(expected.clone()));
    }
}

#[tokio::test]
async fn a_course_that_cannot_be_told_is_refused_in_the_published_words() {
    // RNCC-37. Number 29 is another tenant's: it looks like one that is not there.
    for (arguments, words) in [
        (r#"{"course_id": 0}"#, "course_id must be a positive integer."),
        (r#"{"course_id": -3}"#, "course_id must be a positive integer."),
        (r#"{"course_id": "abc"}"#, "course_id must be a positive integer."),
        ("{}", "course_id must be a positive integer."),
        (r#"{"course_id": 99}"#, "Course with id=99 was not found."),
        (r#"{"course_id": 29}"#, "Course with id=29 was not found."),
    ] {
        let refused = run(shelf(), "get_course_detail", arguments).await;
        assert_eq!(refused, Err(ToolError::Refused(words.to_owned())), "{arguments}");
    }
}

#[tokio::test]
async fn a_page_of_courses_names_its_neighbours() {
    // RNCC-38
    let page = |page: u64| {
        json!(format!("http://127.0.0.1:8080/api/v2/course-recommendations/?q=leadership&page={page}&page_size=5"))
    };
    let first = run(shelf(), "get_course_recommendation", r#"{"query": "leadership"}"#).await.unwrap();
    assert_eq!([&first["count"], &first["next"], &first["previous"]], [&json!(7), &page(2), &Value::Null]);
    let ids: Vec<&Value> = first["results"].as_array().unwrap().iter().map(|course| &course["id"]).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    let second =
        run(shelf(), "get_course_recommendation", r#"{"query": "leadership", "page": 2, "page_size": null}"#).await;
    let second = second.unwrap();
    assert_eq!([&second["count"], &second["next"], &second["previous"]], [&json!(7), &Value::Null, &page(1)]);
    assert_eq!(
        second["results"][0],
        json!({
            "id": 6, "title": "Leadership 6", "description": "About it.", "url": null, "type": "Course", "status": null,
            "progress": 0, "is_eligible": true, "in_playlist": false,
        })
    );
    assert_eq!(second["results"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_question_is_found_by_the_family_of_its_words() {
    let found = run(shelf(), "get_course_recommendation", r#"{"query": "saya mau jadi pemimpin"}"#).await.unwrap();
    assert_eq!([&found["count"], &found["results"][0]["id"]], [&json!(1), &json!(28)]);
}

#[tokio::test]
async fn a_store_that_fails_is_told_to_the_log_and_not_to_the_model() {
    for (name, arguments) in
        [("get_course_detail", r#"{"course_id": 28}"#), ("get_course_recommendation", r#"{"query": "x"}"#)]
    {
        let error = run(Shelf { broken: true, ..shelf() }, name, arguments).await.unwrap_err();
        assert!(matches!(error, ToolError::Broken { .. }), "{error:?}");
        assert_eq!(error.to_string(), "the tool could not be run");
    }
}

#[test]
fn the_schemas_let_through_what_the_tools_have_words_for() {
    let tools = tools(Shelf::default());
    for (name, arguments, good) in [
        ("get_course_detail", r#"{"course_id": 28}"#, true),
        ("get_course_detail", r#"{"course_id": "28"}"#, true),
        ("get_course_detail", r#"{"course_id": 0}"#, true),
        ("get_course_detail", r#"{"course_id": 1.5}"#, false),
        ("get_course_detail", r#"{}"#, false),
        ("get_course_recommendation", r#"{"query": "x"}"#, true),
        ("get_course_recommendation", r#"{"query": "x", "page": 2, "page_size": 50}"#, true),
        ("get_course_recommendation", r#"{"query": "x", "page": null}"#, true),
        ("get_course_recommendation", r#"{"query": "x", "page": 0}"#, false),
        ("get_course_recommendation", r#"{"page": 1}"#, false),
        ("search_knowledge", r#"{"query": "x"}"#, true),
        ("search_knowledge", r#"{"query": "x", "collections": ["code"], "limit": 20}"#, true),
        ("search_knowledge", r#"{"query": "x", "collections": null, "limit": null}"#, true),
        ("search_knowledge", r#"{"query": ""}"#, false),
        ("search_knowledge", r#"{"query": "x", "limit": 21}"#, false),
        ("search_knowledge", r#"{"collections": ["code"]}"#, false),
    ] {
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        let schema = Schema::compile(tool.parameters.raw()).unwrap();
        assert_eq!(schema.check(Raw::parse(arguments.as_bytes()).unwrap()).is_ok(), good, "{name} {arguments}");
    }
}

#[test]
fn every_seed_of_the_bank_is_built_in_under_the_same_words() {
    // RNCC-30, RNCC-43
    let tools = tools(Shelf::default());
    for seed in TOOLS {
        let tool = tools.iter().find(|tool| tool.name == seed.name).unwrap();
        let bank = seed.bank_tool(0);
        assert_eq!((tool.description, tool.parameters.clone()), (bank.description.as_str(), bank.parameters));
        assert_eq!(Some(tool.guidance), bank.guidance.as_deref());
    }
    let without = builtins(&Ports { clock: Arc::new(Noon), courses: None, knowledge: None });
    assert_eq!(without.iter().map(|tool| tool.name).collect::<Vec<_>>(), ["current_time"]);
}
