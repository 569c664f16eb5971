use std::{convert::Infallible, io};

use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use proptest::prelude::*;
use tokio::time::sleep;

use super::*;

const LIMITS: BodyLimits = BodyLimits { bytes: 1000, pause: Duration::from_secs(15) };

fn pieces(pieces: Vec<Bytes>) -> impl Body<Data = Bytes, Error = Infallible> {
    StreamBody::new(stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece)))))
}

/// A body that sends one byte, waits, sends the next, for ever.
fn dripping(pause: Duration) -> impl Body<Data = Bytes, Error = Infallible> {
    StreamBody::new(stream::repeat(()).then(move |()| async move {
        sleep(pause).await;
        Ok(Frame::data(Bytes::from_static(b"x")))
    }))
}

#[tokio::test]
async fn a_body_in_one_piece_is_handed_on_without_a_copy() {
    let sent = Bytes::from(vec![7; 500]);
    let read = read(Full::new(sent.clone()), LIMITS).await.unwrap();
    assert_eq!((read.as_ptr(), read.len()), (sent.as_ptr(), 500));
}

#[tokio::test]
async fn a_stated_length_beyond_the_limit_is_refused_before_anything_is_read() {
    struct Unreadable;
    impl Body for Unreadable {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            panic!("was read")
        }
        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(1001)
        }
    }
    assert_eq!(read(Unreadable, LIMITS).await.unwrap_err().kind, FaultKind::TooLarge);
}

#[tokio::test]
async fn a_body_of_unstated_length_is_refused_at_the_first_byte_beyond_the_limit() {
    let endless =
        StreamBody::new(stream::repeat(()).map(|()| Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; 100])))));
    assert_eq!(read(endless, LIMITS).await.unwrap_err().kind, FaultKind::TooLarge);
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_taken() {
    let body = pieces(vec![Bytes::from(vec![1; 999]), Bytes::from(vec![2; 1])]);
    assert_eq!(read(body, LIMITS).await.unwrap().len(), 1000);
}

// P8
#[tokio::test(start_paused = true)]
async fn a_body_that_stops_is_let_go_after_the_pause() {
    let body = StreamBody::new(
        stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"half"))) }).chain(stream::pending()),
    );
    let started = Instant::now();
    assert_eq!(read(body, LIMITS).await.unwrap_err().kind, FaultKind::RequestTimeout);
    assert!(started.elapsed() <= Duration::from_millis(15_100), "{:?}", started.elapsed());
}

// P8
#[tokio::test(start_paused = true)]
async fn a_body_that_drips_is_let_go_like_one_that_stops() {
    let started = Instant::now();
    assert_eq!(read(dripping(Duration::from_secs(1)), LIMITS).await.unwrap_err().kind, FaultKind::RequestTimeout);
    assert!(started.elapsed() <= Duration::from_secs(16), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_that_keeps_coming_is_read_to_its_end() {
    let limits = BodyLimits { bytes: 1 << 20, ..LIMITS };
    let body = StreamBody::new(stream::iter(0..100).then(|_| async {
        sleep(Duration::from_secs(1)).await;
        Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; 2048])))
    }));
    assert_eq!(read(body, limits).await.unwrap().len(), 204_800);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_callers_fault_and_the_cause_goes_to_the_log() {
    let body = StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from_static(b"{"))), Err(io::Error::other("cut"))]));
    let fault = read(body, LIMITS).await.unwrap_err();
    assert_eq!((fault.kind, fault.detail.as_deref()), (FaultKind::Invalid, Some("cut")));
    assert!(!fault.message.contains("cut"));
}

#[test]
fn a_body_that_is_declared_as_json_is_accepted_and_no_other() {
    let cases = [
        (None, false),
        (Some("application/json"), true),
        (Some("Application/JSON; charset=utf-8"), true),
        (Some("application/vnd.api+json"), true),
        (Some("application/x-www-form-urlencoded"), false),
        (Some("text/plain"), false),
        (Some("application/jsonx"), false),
        (Some("applicationjson"), false),
        (Some(""), false),
    ];
    for (value, accepted) in cases {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
        }
        assert_eq!(expect_json(&headers).is_ok(), accepted, "{value:?}");
    }
}

#[test]
fn a_compressed_body_is_named_as_such() {
    let mut headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert_eq!(expect_json(&headers).unwrap_err().kind, FaultKind::UnsupportedMedia);
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("identity"));
    assert_eq!(expect_json(&headers), Ok(()));
}

proptest! {
    #[test]
    fn any_cutting_of_a_body_gives_the_same_bytes(cuts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let whole = cuts.concat();
        let body = pieces(cuts.into_iter().map(Bytes::from).collect());
        prop_assert_eq!(runtime.block_on(read(body, LIMITS)).unwrap(), whole);
    }
}
