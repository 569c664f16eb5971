//! Uploaded files: stored, listed, returned and deleted; and referenced in requests.

mod forms;
mod used;

use amalgam_testkit::{Client, HttpAnswer, Setup};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{TestStore, World, assert_refused, stores};

const BOUNDARY: &str = "the-boundary";

async fn worlds(config: &str) -> Vec<(TestStore, World)> {
    let mut worlds = Vec::new();
    for store in stores() {
        let world = World::with(store.setup(Setup::new().extra(config)), &[]).await;
        worlds.push((store, world));
    }
    worlds
}

/// A form of plain fields and one file.
fn form(fields: &[(&str, &str)], filename: &str, media_type: Option<&str>, content: &[u8]) -> Bytes {
    let mut form = Vec::new();
    for (name, value) in fields {
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        form.extend_from_slice(head.as_bytes());
    }
    let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\n");
    form.extend_from_slice(head.as_bytes());
    if let Some(media_type) = media_type {
        form.extend_from_slice(format!("Content-Type: {media_type}\r\n").as_bytes());
    }
    form.extend_from_slice(b"\r\n");
    form.extend_from_slice(content);
    form.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    form.into()
}

async fn post(client: &Client, form: impl Into<Bytes>) -> HttpAnswer {
    client.post_raw("/v1/files", &format!("multipart/form-data; boundary={BOUNDARY}"), form).await
}

/// Uploads a file for `user_data`, and wants that to work.
async fn upload(client: &Client, filename: &str, media_type: Option<&str>, content: &[u8]) -> Value {
    let answer = post(client, form(&[("purpose", "user_data")], filename, media_type, content)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn delete(client: &Client, path: &str) -> HttpAnswer {
    client.request(Method::DELETE, path, &[], Bytes::new()).await
}

fn id_of(file: &Value) -> &str {
    file["id"].as_str().expect("a file has an id")
}

fn ids(list: &Value) -> Vec<&str> {
    list["data"].as_array().expect("a list has data").iter().map(id_of).collect()
}

#[tokio::test]
async fn a_file_is_uploaded_shown_given_back_and_forgotten() {
    for (store, world) in worlds("").await {
        let client = world.amalgam.client();
        let content = b"<script>alert(1)</script>\r\n--the-boundar\r\n\0\xff";
        let file = upload(&client, "k\u{e4}se \\\"1\\\".html", Some("text/html"), content).await;
        let (id, created_at) = (id_of(&file).to_owned(), file["created_at"].as_u64().unwrap());
        assert!(id.starts_with("file_AM-") && created_at > 1_700_000_000, "{file}");
        let expected = json!({
            "id": id, "object": "file", "bytes": content.len(), "created_at": created_at,
            "filename": "k\u{e4}se \"1\".html", "purpose": "user_data", "status": "processed",
        });
        assert_eq!(file, expected, "{}", store.name);
        let path = format!("/v1/files/{id}");
        assert_eq!(client.get(&path).await.json(), expected, "{}", store.name);

        let given = client.get(&format!("{path}/content")).await;
        assert_eq!((given.status.as_u16(), &given.body[..]), (200, &content[..]), "{}", store.name);
        // An uploaded file is never shown as a page of this server. S19
        let header = |name| given.header(name).unwrap_or_default().to_owned();
        assert_eq!(header("content-type"), "text/html");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("content-disposition"), "attachment; filename*=UTF-8''k%C3%A4se%20%221%22.html");
        assert_eq!(header("content-security-policy"), "default-src 'none'; sandbox");

        let gone = json!({"id": id, "object": "file", "deleted": true});
        assert_eq!(delete(&client, &path).await.json(), gone, "{}", store.name);
        for answer in [
            client.get(&path).await,
            client.get(&format!("{path}/content")).await,
            delete(&client, &path).await,
            client.get("/v1/files/file_AM-aaaaaaaaaaaaaaaaaaaaaaaa").await,
            client.get("/v1/files/%00").await,
        ] {
            assert_refused(&answer, 404, None, "not_found");
        }
        assert_eq!(ids(&client.get("/v1/files").await.json()), Vec::<&str>::new(), "{}", store.name);
    }
}

#[tokio::test]
async fn files_outlive_the_process_and_belong_to_one_user() {
    // P1, S10
    let tenants = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
    for (store, mut world) in worlds(tenants).await {
        let caller = |world: &World, key: &str, user: &str| {
            Client::new(world.amalgam.url()).with_key(key).with_header("x-amalgam-user", user)
        };
        let file = upload(&caller(&world, "am_a", "one"), "a.txt", None, b"mine").await;
        let path = format!("/v1/files/{}/content", id_of(&file));
        world.amalgam.kill();
        world.start_again().await;
        assert_eq!(caller(&world, "am_a", "one").get(&path).await.text(), "mine", "{}", store.name);
        for (key, user) in [("am_a", "two"), ("am_b", "one")] {
            let stranger = caller(&world, key, user);
            assert_eq!(stranger.get(&path).await.status, 404, "{} {key} {user}", store.name);
            assert_eq!(stranger.get("/v1/files").await.json()["data"], json!([]), "{} {key} {user}", store.name);
        }
    }
}

#[tokio::test]
async fn files_are_listed_in_pages_by_age_and_by_purpose() {
    for (store, world) in worlds("").await {
        let client = world.amalgam.client();
        let mut all = Vec::new();
        for n in 0..5 {
            let purpose = if n % 2 == 0 { "user_data" } else { "vision" };
            let answer = post(&client, form(&[("purpose", purpose)], "a.txt", None, b"x")).await;
            all.push(id_of(&answer.json()).to_owned());
        }
        // Files of one moment are in the order of their ids.
        all.sort();
        let list = async |query: &str| client.get(&format!("/v1/files{query}")).await.json();
        let whole = list("?order=asc").await;
        assert_eq!(ids(&whole), all, "{}", store.name);
        let (object, first, last) = (&whole["object"], &whole["first_id"], &whole["last_id"]);
        assert_eq!((object, first, last), (&json!("list"), &json!(all[0]), &json!(all[4])), "{}", store.name);
        assert_eq!(whole["has_more"], false, "{}", store.name);
        let newest: Vec<&String> = all.iter().rev().collect();
        assert_eq!(ids(&list("").await), newest, "{}: the newest first", store.name);

        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let page = list(&format!("?limit=2&after={after}")).await;
            assert!(ids(&page).len() <= 2, "{page}");
            seen.extend(ids(&page).into_iter().map(str::to_owned));
            after = page["last_id"].as_str().expect("no page is empty").to_owned();
            if page["has_more"] == false {
                break;
            }
        }
        assert_eq!(seen.iter().collect::<Vec<_>>(), newest, "{}", store.name);
        let vision = list("?purpose=vision&order=asc").await;
        assert_eq!(vision["data"].as_array().unwrap().len(), 2, "{}: {vision}", store.name);
        let none = list("?purpose=nothing").await;
        let expected = json!({"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false});
        assert_eq!(none, expected, "{}", store.name);
        for (query, param) in
            [("limit=0", "limit"), ("limit=10001", "limit"), ("order=up", "order"), ("purpose=%00", "purpose")]
        {
            assert_refused(&client.get(&format!("/v1/files?{query}")).await, 400, Some(param), "invalid_value");
        }
    }
}

#[tokio::test]
async fn a_file_can_be_said_to_go_by_itself() {
    for (store, world) in worlds("").await {
        let client = world.amalgam.client();
        let life =
            [("purpose", "user_data"), ("expires_after[anchor]", "created_at"), ("expires_after[seconds]", "3600")];
        let file = post(&client, form(&life, "a.txt", None, b"x")).await.json();
        let lives = file["expires_at"].as_u64().unwrap() - file["created_at"].as_u64().unwrap();
        assert_eq!(lives, 3600, "{}: {file}", store.name);
        assert_eq!(client.get(&format!("/v1/files/{}", id_of(&file))).await.json(), file, "{}", store.name);
    }
}

#[tokio::test]
async fn the_same_upload_under_a_key_is_done_once() {
    // S1, P4
    for (store, world) in worlds("").await {
        let client = world.amalgam.client().with_header("idempotency-key", "once");
        let first = upload(&client, "a.txt", None, b"x").await;
        // Another boundary is the same file all the same.
        let body = String::from_utf8(form(&[("purpose", "user_data")], "a.txt", None, b"x").to_vec()).unwrap();
        let body = body.replace(BOUNDARY, "another");
        let again = client.post_raw("/v1/files", "multipart/form-data; boundary=another", body).await;
        assert_eq!(again.json(), first, "{}", store.name);
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "{}", store.name);
        let other = post(&client, form(&[("purpose", "user_data")], "a.txt", None, b"y")).await;
        assert_eq!(other.status, 422, "{}: {}", store.name, other.text());
        assert_eq!(ids(&client.get("/v1/files").await.json()), [id_of(&first)], "{}", store.name);
    }
}
