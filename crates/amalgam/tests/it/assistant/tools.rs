//! Which tools an assistant has, which one comes first, and when it has to do without.

use amalgam_testkit::Setup;
use serde_json::{Value, json};

use super::campus::{ALPHA, Campus, respond, text_of};
use crate::support::{Said, Script, put_tool, stores};

fn offered(request: &Value) -> Vec<&str> {
    request["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect()
}

fn detail(id: &str) -> Script {
    Script::new([Said::call(id, "get_course_detail", &["{\"course_id\":", "28}"])])
}

fn recommendation(id: &str, query: &str) -> Script {
    let arguments = json!({"query": query}).to_string();
    Script::new([Said::call(id, "get_course_recommendation", &[&arguments])])
}

/// Everything that a request to the model says, as one text.
fn everything(request: &Value) -> String {
    let items = request["input"].as_array().into_iter().flatten();
    let said: Vec<String> = items.map(|item| text_of(&item["content"])).collect();
    format!("{}\n{}", request["instructions"].as_str().unwrap_or_default(), said.join("\n"))
}

const ONE_SENTENCE: &str = "exactly one short sentence";

#[tokio::test]
async fn only_tools_that_are_assigned_active_and_registered_are_offered() {
    // RNCC-30
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        let client_side = json!({"description": "x", "kind": "client", "parameters": {"type": "object"}});
        let put = put_tool(&campus.admin(ALPHA), "on_screen", &client_side).await;
        assert!(put.status.is_success(), "{}", put.text());
        let tools = json!(["get_course_detail", "unregistered", "on_screen", "get_course_recommendation"]);
        campus.put_profile(ALPHA, "many", json!({"prompt": "x", "tools": tools})).await;
        campus.chat(&ana, json!({"agent": "many", "message": "Hi"}), "Fine.").await;
        let asked = campus.last_asked();
        assert_eq!(offered(&asked), ["get_course_detail", "get_course_recommendation"]);
        let schema = &asked["tools"][0]["parameters"];
        assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["course_id"])), "{asked}");
        // A tool that is inactive in the tenant's bank is not offered, and the profile still works.
        let off = json!({"kind": "builtin", "active": false});
        let put = put_tool(&campus.admin(ALPHA), "get_course_detail", &off).await;
        assert!(put.status.is_success(), "{}", put.text());
        campus.chat(&ana, json!({"agent": "many", "message": "Hi"}), "Fine.").await;
        assert_eq!(offered(&campus.last_asked()), ["get_course_recommendation"]);
        // A course on the screen forces no tool that is not there. RNCC-34
        let body = json!({"agent": "course-assistant", "message": "Hi", "metadata": {"course_id": 28}});
        campus.chat(&ana, body, "Fine.").await;
        assert_eq!(offered(&campus.last_asked()), Vec::<&str>::new());
        assert!(!campus.last_asked()["tool_choice"].is_object(), "{}", campus.last_asked());
    }
}

#[tokio::test]
async fn the_first_call_is_forced_for_a_course_on_its_page_and_never_again() {
    // RNCC-34
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.put_profile(ALPHA, "course-helper", json!({"prompt": "x", "tools": ["get_course_detail"]})).await;
        let on_page = json!({"course_id": "28"});
        let forced = json!({"type": "function", "name": "get_course_detail"});
        campus.says(&[detail("call_1"), detail("call_2"), Script::text(&["It is about leading."])]);
        let body = json!({"agent": "course-assistant", "message": "Rangkum dong", "metadata": on_page});
        let answer = campus.told(&ana, body.clone()).await;
        assert_eq!(answer["tool_results"].as_array().map(Vec::len), Some(2));
        let choices: Vec<Value> = campus.asked().iter().map(|request| request["tool_choice"].clone()).collect();
        assert_eq!(choices[0], forced);
        for choice in &choices[1..] {
            assert!(choice.is_null() || choice == "auto", "{choice}");
        }
        // Each turn begins so, and no other profile, and no page without a course.
        campus.says(&[detail("call_1"), Script::text(&["Again."])]);
        campus.told(&ana, body).await;
        assert_eq!(campus.asked()[3]["tool_choice"], forced);
        for body in [
            json!({"agent": "course-assistant", "message": "Hi"}),
            json!({"agent": "course-helper", "message": "Hi", "metadata": on_page}),
            json!({"agent": "home-assistant", "message": "Hi", "metadata": on_page}),
            json!({"message": "Hi", "metadata": on_page}),
        ] {
            campus.chat(&ana, body.clone(), "Fine.").await;
            let choice = campus.last_asked()["tool_choice"].clone();
            assert!(choice.is_null() || choice == "auto", "{body}: {choice}");
        }
        // The tool is called for a missing course, and reports that itself.
        let body = json!({"agent": "course-assistant", "message": "Hi", "metadata": {"course_id": 999}});
        campus.says(&[detail("call_1"), Script::text(&["Fine."])]);
        campus.told(&ana, body).await;
        assert_eq!(campus.asked()[campus.asked().len() - 2]["tool_choice"], forced);
    }
}

#[tokio::test]
async fn after_a_recommendation_the_model_is_told_to_be_brief_and_only_then() {
    // RNCC-35, RNCC-38
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.says(&[recommendation("call_1", "excel data"), Script::text(&["Here are a few."])]);
        let body = json!({"agent": "home-assistant", "message": "Rekomendasi excel?", "metadata": {}});
        let answer = campus.told(&ana, body).await;
        assert_eq!(answer["message"], "Here are a few.");
        let output = &answer["tool_results"][0]["output"];
        let next = format!("{}/api/v2/course-recommendations/?q=excel%20data&page=2&page_size=5", campus.amalgam.url());
        assert_eq!((&output["count"], &output["next"], &output["previous"]), (&json!(7), &json!(next), &Value::Null));
        let cards = output["results"].as_array().expect("a page has courses");
        assert_eq!(cards.len(), 5);
        let id = cards[0]["id"].as_i64().expect("a course has a number");
        let card = json!({
            "id": id, "title": format!("Spreadsheets {id}"), "description": format!("About Spreadsheets {id}."),
            "url": format!("https://courses.example.com/{id}"), "type": "Course", "status": null, "progress": 0,
            "is_eligible": true, "in_playlist": false,
        });
        assert_eq!(cards[0], card);

        let asked = campus.asked();
        assert!(!everything(&asked[0]).contains(ONE_SENTENCE), "{}", asked[0]);
        assert_eq!(everything(&asked[1]).matches(ONE_SENTENCE).count(), 1, "{}", asked[1]);
        // Neither the caller's next turn nor a turn with the other tool contains it.
        campus.chat(&ana, json!({"agent": "home-assistant", "message": "Thanks"}), "Welcome.").await;
        assert!(!everything(&campus.last_asked()).contains(ONE_SENTENCE), "{}", campus.last_asked());
        campus.says(&[detail("call_1"), Script::text(&["Fine."])]);
        campus.told(&ana, json!({"agent": "course-assistant", "message": "Hi"})).await;
        assert!(!everything(&campus.last_asked()).contains(ONE_SENTENCE), "{}", campus.last_asked());
        // Called twice, shown once.
        campus.says(&[recommendation("call_1", "x"), recommendation("call_2", "data"), Script::text(&["Fine."])]);
        campus.told(&ana, json!({"agent": "home-assistant", "message": "More"})).await;
        assert_eq!(everything(&campus.last_asked()).matches(ONE_SENTENCE).count(), 1, "{}", campus.last_asked());

        // The pages are where the answer says, for the same caller, and lead to each other.
        let path = next.strip_prefix(campus.amalgam.url()).expect("a page is at this server");
        let page = ana.get(path).await.json();
        assert_eq!(page["results"].as_array().map(Vec::len), Some(2));
        assert_eq!(page["next"], Value::Null);
        let back =
            page["previous"].as_str().and_then(|url| url.strip_prefix(campus.amalgam.url())).expect("a page before");
        let first = ana.get(back).await.json();
        assert_eq!(first["results"], output["results"]);
        let stranger = ana.without_header("authorization").get(path).await;
        assert_eq!(stranger.status, 401);
    }
}

#[tokio::test]
async fn at_the_cap_the_model_is_asked_once_without_tools() {
    // RNCC-33, RNCC-40: AI_AGENT_MAX_TOOL_ITERATIONS
    for store in stores() {
        let campus = Campus::with(&store, Setup::new().env("AI_AGENT_MAX_TOOL_ITERATIONS", "2")).await;
        let ana = campus.user(ALPHA, "ana");
        let body = json!({"agent": "course-assistant", "message": "Hi"});
        campus.says(&[detail("call_1"), detail("call_2"), Script::text(&["Enough."])]);
        let answer = campus.told(&ana, body.clone()).await;
        assert_eq!(answer["message"], "Enough.");
        assert_eq!(answer["tool_results"].as_array().map(Vec::len), Some(2));
        let asked = campus.asked();
        assert_eq!(asked.len(), 3);
        let without = |request: &Value| offered(request).is_empty() || request["tool_choice"] == "none";
        assert!(!without(&asked[1]) && without(&asked[2]), "{}", asked[2]);
        // One that still says nothing is a service that has failed; what it called is not run.
        campus.says(&[detail("call_1"), detail("call_2"), detail("call_3")]);
        let failed = respond(&ana, &body).await;
        let expected = json!({"detail": "AI service is temporarily unavailable."});
        assert_eq!((failed.status.as_u16(), failed.json()), (503, expected));
        assert_eq!(campus.asked().len(), 6);
        let thread = campus.thread(ALPHA, &answer["session_id"]).await;
        assert_eq!(thread.len(), 3, "{thread:?}");
        assert_eq!(super::campus::known(&thread[2], "tool_call").len(), 2, "{}", thread[2]);
        // A tenant may set its own.
        campus.configure(ALPHA, json!({"max_tool_iterations": 1})).await;
        campus.says(&[detail("call_1"), Script::text(&["Enough."])]);
        campus.told(&ana, body).await;
        assert!(without(&campus.last_asked()), "{}", campus.last_asked());
    }
}

#[tokio::test]
async fn the_catalogue_is_searched_and_paged_without_an_assistant() {
    // RNCC-38
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        let ids = |page: &Value| -> Vec<i64> {
            page["results"].as_array().into_iter().flatten().filter_map(|course| course["id"].as_i64()).collect()
        };
        let page = async |query: &str| ana.get(&format!("/api/v2/course-recommendations/{query}")).await.json();
        assert_eq!(ids(&page("?q=leadership").await), [28], "what is not offered is not found");
        assert_eq!(ids(&page("?q=KEPEMIMPINAN").await), [30]);
        assert_eq!(
            page("?q=nothing-like-it").await,
            json!({"count": 0, "next": null, "previous": null, "results": []})
        );
        let all = page("?page_size=50").await;
        assert_eq!((&all["count"], ids(&all).len()), (&json!(9), 9));
        let mut seen = Vec::new();
        let mut path = "/api/v2/course-recommendations/?q=data&page_size=2".to_owned();
        loop {
            let page = ana.get(&path).await.json();
            assert_eq!(page["count"], 7);
            seen.extend(ids(&page));
            match page["next"].as_str() {
                Some(next) => path = next.strip_prefix(campus.amalgam.url()).expect("at this server").to_owned(),
                None => break,
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (101..=107).collect::<Vec<_>>(), "each once");
        let wrong = ana.get("/api/v2/course-recommendations/?page=two").await;
        assert_eq!(wrong.status, 400);
        assert!(wrong.json()["detail"].is_string(), "{}", wrong.text());
        let posted = ana.post_json("/api/v2/course-recommendations/", &json!({})).await;
        assert_eq!(posted.status, 405);
        assert_eq!(campus.asked(), Vec::<Value>::new(), "no model is asked for it");
    }
}
