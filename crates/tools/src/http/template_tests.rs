use proptest::prelude::*;

use super::*;

fn url(template: &str, arguments: &str) -> Result<String, String> {
    UrlTemplate::parse(template).unwrap().fill(Raw::parse(arguments.as_bytes()).unwrap())
}

fn body(template: &str, arguments: &str) -> String {
    let template = Json::parse(&Bytes::copy_from_slice(template.as_bytes())).unwrap();
    let filled = BodyTemplate::new(template).fill(Raw::parse(arguments.as_bytes()).unwrap());
    String::from_utf8(filled.to_vec()).unwrap()
}

#[test]
fn arguments_fill_path_and_query_and_absent_ones_leave_the_query() {
    let template = "https://a.example/courses/{id}/p?q={words}&n={n}&fixed=1&flag={flag}&list={list}";
    let arguments = r#"{"id": "a/b c", "words": "x&y=é?#%", "n": null, "flag": true, "list": [1, "a"]}"#;
    assert_eq!(
        url(template, arguments).unwrap(),
        "https://a.example/courses/a%2Fb%20c/p?q=x%26y%3D%C3%A9%3F%23%25&fixed=1&flag=true&list=%5B1%2C%20%22a%22%5D"
    );
    assert_eq!(url("https://a.example?q={q}", "{}").unwrap(), "https://a.example");
}

#[test]
fn a_path_without_its_argument_is_refused() {
    assert_eq!(url("https://a.example/{id}", "{}").unwrap_err(), "the argument `id` is missing");
    assert!(url("https://a.example/{id}", r#"{"id": ""}"#).is_err());
}

// S17
#[test]
fn no_argument_leads_out_of_the_path() {
    for id in ["..", ".", "../admin", "a/../b", "..\\\\admin", "a/.."] {
        assert!(url("https://a.example/users/{id}/x", &format!(r#"{{"id": "{id}"}}"#)).is_err(), "{id}");
    }
    assert!(url("https://a.example/{a}{b}/x", r#"{"a": ".", "b": "x"}"#).is_err());
    assert!(url("https://a.example/x.{a}/y", r#"{"a": "."}"#).is_err());
    assert!(url("https://a.example/.{a}/y", r#"{"a": "x"}"#).is_ok());
    assert_eq!(url("https://a.example/{id}", r#"{"id": "a..b"}"#).unwrap(), "https://a.example/a..b");
}

// S14
#[test]
fn templates_that_leave_the_host_open_or_are_no_url_are_refused() {
    for template in [
        "https://{host}/x",
        "https://a.{domain}/x",
        "https://a.example:{port}/x",
        "{scheme}://a.example/x",
        "https://{user}@a.example/x",
        "https://user@a.example/x",
        "https://a.example/x#{part}",
        "https://a.example/{",
        "https://a.example/}",
        "https://a.example/{}",
        "https://a.example/{a b}",
        "https://a.example/{a/b}",
        "https://a.example/a/../b",
        "https://127.1/x",
        "ftp://a.example/x",
        "a.example/x",
        "https:///x",
        "https://a.example/ x",
    ] {
        assert!(UrlTemplate::parse(template).is_err(), "{template}");
    }
}

#[test]
fn a_body_takes_arguments_as_values_and_leaves_out_fields_without_one() {
    let template = r#"{"user": {"id": "{id}", "note": "{note}"}, "tags": ["{a}", "x"], "kind": "fixed {id}", "n": 1}"#;
    assert_eq!(
        body(template, r#"{"id": {"deep": [1]}, "a": null}"#),
        r#"{"user":{"id":{"deep": [1]}},"tags":[null,"x"],"kind":"fixed {id}","n":1}"#
    );
    assert_eq!(body(r#""arguments""#, r#"{"a": 1}"#), r#"{"a": 1}"#);
    assert_eq!(body(r#""{a}""#, r#"{"a": [1]}"#), "[1]");
    assert_eq!(body(r#""{a}""#, "{}"), "null");
}

proptest! {
    // S14, S17
    #[test]
    fn whatever_the_arguments_are_the_request_goes_to_the_same_place(id in any::<String>(), q in any::<String>()) {
        let arguments = serde_json::json!({"id": id, "q": q}).to_string();
        if let Ok(url) = url("https://a.example:8443/base/{id}/end?q={q}", &arguments) {
            let uri: ::http::Uri = url.parse().unwrap();
            prop_assert_eq!(uri.authority().unwrap().as_str(), "a.example:8443");
            let segments: Vec<_> = uri.path().split('/').collect();
            prop_assert_eq!((segments.len(), segments[1], segments[3]), (4, "base", "end"));
            prop_assert_eq!(uri.query().unwrap().matches(['&', '=', '#']).count(), 1);
        }
    }

    #[test]
    fn a_filled_body_is_valid_whatever_fills_it(value in any::<String>()) {
        let arguments = serde_json::json!({"value": value}).to_string();
        let filled = body(r#"{"a": ["{value}", {"é\"": "{value}"}]}"#, &arguments);
        let read: serde_json::Value = serde_json::from_str(&filled).unwrap();
        prop_assert_eq!(read, serde_json::json!({"a": [value, {"é\"": value}]}));
    }
}
