use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn read(body: &str) -> Result<Vec<Part>, String> {
    parts(&Bytes::copy_from_slice(body.as_bytes()), "b").map_err(|fault| {
        assert_eq!((fault.kind, fault.code.as_deref()), (FaultKind::Invalid, Some("invalid_multipart")));
        fault.into_parts().message.into_owned()
    })
}

fn part(name: &str, filename: Option<&str>, content_type: Option<&str>, content: &str) -> Part {
    Part {
        name: name.to_owned(),
        filename: filename.map(str::to_owned),
        content_type: content_type.map(str::to_owned),
        content: Bytes::copy_from_slice(content.as_bytes()),
    }
}

#[test]
fn a_form_is_its_parts() {
    let body = "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n\
                --b \t\r\ncontent-type: text/plain\r\nCONTENT-DISPOSITION: form-data; filename=\"a \\\"b\\\".txt\"; name=file\r\n\r\n\
                one\r\n--bc\r\n--\r\ntwo\r\n\r\n--b--\r\nepilogue";
    let file = part("file", Some("a \"b\".txt"), Some("text/plain"), "one\r\n--bc\r\n--\r\ntwo\r\n");
    let expected = vec![part("purpose", None, None, "user_data"), file];
    assert_eq!(read(body).unwrap(), expected);
    assert_eq!(read(&format!("preamble\r\n{body}")).unwrap(), expected);
    assert_eq!(read("--b--").unwrap(), []);
    let empty = "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n--b--";
    assert_eq!(read(empty).unwrap(), [part("x", None, None, "")]);
}

#[test]
fn a_filename_is_read_however_clients_write_it() {
    let name = |written: &str| {
        let body = format!("--b\r\nContent-Disposition: form-data; name=\"file\"; {written}\r\n\r\nx\r\n--b--\r\n");
        read(&body).unwrap().remove(0).filename
    };
    for (written, expected) in [
        ("filename=plain.txt", "plain.txt"),
        ("filename=\"käse;=.txt\"", "käse;=.txt"),
        ("filename=\"a%22b.txt\"", "a\"b.txt"),
        (r#"filename="C:\dir\a.txt""#, r"C:\dir\a.txt"),
        ("filename=\"x\"; filename*=UTF-8''k%C3%A4se.txt", "käse.txt"),
        ("filename=\"x\"; filename*=latin1''k%E4se", "x"),
    ] {
        assert_eq!(name(written).as_deref(), Some(expected), "{written}");
    }
    assert_eq!(name("other=1"), None);
}

#[test]
fn a_broken_form_is_told_as_one() {
    let head = "Content-Disposition: form-data; name=x";
    for (body, why) in [
        (String::new(), "last boundary"),
        ("--b".to_owned(), "last boundary"),
        (format!("--b\r\n{head}\r\n\r\nx"), "last boundary"),
        (format!("--b\r\n{head}\r\n\r\nx\r\n--b"), "last boundary"),
        ("--b\r\n\r\n--b--".to_owned(), "no end"),
        (format!("--b\r\n{}\r\n\r\nx\r\n--b--", "h: ".repeat(MAX_HEADER_BYTES)), "no end"),
        ("--b\r\nnonsense\r\n\r\nx\r\n--b--".to_owned(), "no colon"),
        ("--b\r\nX: y\r\n\r\nx\r\n--b--".to_owned(), "no Content-Disposition"),
        ("--b\r\nContent-Disposition: attachment; name=x\r\n\r\nx\r\n--b--".to_owned(), "no form-data"),
        ("--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--".to_owned(), "no name"),
        ("--b\r\nContent-Disposition: form-data; name=\"x\r\n\r\nx\r\n--b--".to_owned(), "no name"),
        (format!("--b\r\n{head}\r\nContent-Transfer-Encoding: base64\r\n\r\nx\r\n--b--"), "encoded"),
        (format!("{}--b--", format!("--b\r\n{head}\r\n\r\nx\r\n").repeat(17)), "too many"),
    ] {
        let told = read(&body).unwrap_err();
        assert!(told.contains(why), "{body:?}: {told}");
    }
}

#[test]
fn only_a_form_with_a_boundary_is_taken() {
    let headers = |value: &'static str| HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(value))]);
    let boundary = |value| expect_form(&headers(value)).map_err(|fault| fault.kind);
    assert_eq!(boundary("Multipart/Form-Data; charset=utf-8; boundary=\"a b\""), Ok(Some("a b".to_owned())));
    assert_eq!(boundary("multipart/form-data; boundary=--x"), Ok(Some("--x".to_owned())));
    for none in ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"x"] {
        assert_eq!(boundary(none), Ok(None), "{none}");
    }
    for other in ["application/json", "multipart/mixed; boundary=x", ""] {
        assert_eq!(boundary(other), Err(FaultKind::UnsupportedMedia), "{other}");
    }
    let mut packed = headers("multipart/form-data; boundary=x");
    packed.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert_eq!(expect_form(&packed).map_err(|fault| fault.kind), Err(FaultKind::UnsupportedMedia));
}

proptest! {
    #[test]
    fn any_content_without_the_boundary_comes_out_as_it_went_in(content in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut body = b"--bound\r\nContent-Disposition: form-data; name=f\r\n\r\n".to_vec();
        body.extend_from_slice(&content);
        body.extend_from_slice(b"\r\n--bound--\r\n");
        let read = parts(&body.into(), "bound").unwrap();
        prop_assert_eq!(read.len(), 1);
        prop_assert_eq!(&read[0].content[..], &content[..]);
    }

    #[test]
    fn no_bytes_make_it_fall_over(body in "[-b\r\n \"\\\\;=:xé]{0,80}|(--b\r\n|\r\n|Content-Disposition: form-data; name=x\r\n|x|--){0,12}") {
        let _ = read(&body);
    }
}
