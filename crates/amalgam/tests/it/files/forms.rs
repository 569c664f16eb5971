//! What is refused of an upload, and how.

use amalgam_testkit::{Client, Setup};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{BOUNDARY, delete, form, id_of, post, upload, worlds};
use crate::support::{World, assert_calm, assert_refused, error_of};

const PURPOSE: (&str, &str) = ("purpose", "user_data");

#[tokio::test]
async fn a_file_beyond_the_limit_is_refused_and_nothing_of_it_is_kept() {
    for (store, world) in worlds("[limits]\nfile_bytes = \"1KiB\"").await {
        let client = world.amalgam.client();
        upload(&client, "a.txt", None, &[b'x'; 1024]).await;
        for bytes in [1025, 200_000] {
            let answer = post(&client, form(&[PURPOSE], "a.txt", None, &vec![b'x'; bytes])).await;
            let error = error_of(&answer);
            assert_eq!((answer.status.as_u16(), &error["code"]), (413, &json!("request_too_large")), "{error}");
        }
        assert_eq!(client.get("/v1/files").await.json()["data"].as_array().unwrap().len(), 1, "{}", store.name);
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_before_it_has_arrived() {
    // P7, S16: with a length that is stated, and in chunks that do not end.
    let world = World::with(Setup::new().extra("[limits]\nfile_bytes = \"1KiB\""), &[]).await;
    let head = |length: &str| {
        format!(
            "POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary={BOUNDARY}\r\n{length}\r\n\r\n"
        )
    };
    let mut stated = Client::new(world.amalgam.url()).connect().await;
    stated.write_all(head("content-length: 100000000").as_bytes()).await.unwrap();
    let mut endless = Client::new(world.amalgam.url()).connect().await;
    endless.write_all(head("transfer-encoding: chunked").as_bytes()).await.unwrap();
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for _ in 0..8 {
        // The server may have hung up by then.
        if endless.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    for mut connection in [stated, endless] {
        let mut answer = vec![0; 12];
        connection.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413");
    }
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn a_tenant_has_so_much_room_and_gets_it_back() {
    for (store, world) in worlds("[limits]\nfiles_bytes_per_tenant = \"3000B\"").await {
        let client = world.amalgam.client();
        let first = upload(&client, "a.txt", None, &[b'x'; 2000]).await;
        let too_much = form(&[PURPOSE], "b.txt", None, &[b'x'; 1001]);
        let answer = post(&client, too_much.clone()).await;
        assert_refused(&answer, 413, Some("file"), "file_storage_exceeded");
        upload(&client, "c.txt", None, &[b'x'; 1000]).await;
        assert_eq!(delete(&client, &format!("/v1/files/{}", id_of(&first))).await.status, 200);
        assert_eq!(post(&client, too_much).await.status, 200, "{}: there is room again", store.name);
    }
}

#[tokio::test]
async fn a_hostile_form_is_the_callers_mistake() {
    // P9
    let world = World::start().await;
    let client = world.amalgam.client();
    let good = form(&[PURPOSE], "a.txt", None, b"x");
    let mut cut: Vec<usize> = (0..good.len()).step_by(7).collect();
    cut.push(good.len() - 5);
    for length in cut {
        let answer = post(&client, good.slice(..length)).await;
        assert_refused(&answer, 400, None, "invalid_multipart");
    }
    let part = |disposition: &str, content: &str| {
        format!("--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n\r\n{content}\r\n")
    };
    let ending = format!("--{BOUNDARY}--");
    let many: String = (0..100).map(|_| part("form-data; name=purpose", "x")).collect();
    let long = "n".repeat(100_000);
    for body in [
        part("form-data", "x") + &ending,
        part("form-data; name=\"", "x") + &ending,
        part(&format!("form-data; name=file; filename=\"{long}\""), "x") + &ending,
        many + &ending,
        "\0".repeat(1000),
    ] {
        assert_refused(&post(&client, body).await, 400, None, "invalid_multipart");
    }
    let file = "form-data; name=file; filename=a";
    for (body, param, code) in [
        (ending.clone(), "purpose", "missing_required_parameter"),
        (part("form-data; name=purpose", "x") + &ending, "file", "missing_required_parameter"),
        (part(file, "x") + &part("form-data; name=company_id", "2") + &ending, "company_id", "unknown_parameter"),
        (part(file, "x") + &part("form-data; name=purpose", "a b") + &ending, "purpose", "invalid_value"),
        (part(file, "") + &part("form-data; name=purpose", "x") + &ending, "file", "invalid_value"),
    ] {
        assert_refused(&post(&client, body).await, 400, Some(param), code);
    }
    for content_type in ["application/json", "text/plain", "multipart/mixed; boundary=x"] {
        let answer = client.post_raw("/v1/files", content_type, good.clone()).await;
        assert_refused(&answer, 415, None, "unsupported_media_type");
    }
    let answer = client.post_raw("/v1/files", "multipart/form-data", good.clone()).await;
    assert_refused(&answer, 400, None, "invalid_multipart");
    assert_eq!(client.get("/v1/files").await.json()["data"], json!([]));
    assert_calm(&world.amalgam);
}
