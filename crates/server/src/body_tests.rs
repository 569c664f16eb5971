use std::{convert::Infallible, io};

use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use proptest::prelude::*;
use tokio::time::sleep;

use super::*;

const LIMITS: BodyLimits = BodyLimits { bytes: 1000, text_bytes: 1000, pause: Duration::from_secs(15) };

fn memory() -> RequestMemory {
    RequestMemory::new(1 << 20)
}

fn chunks(chunks: Vec<Bytes>) -> impl Body<Data = Bytes, Error = Infallible> {
    StreamBody::new(stream::iter(chunks.into_iter().map(|chunk| Ok(Frame::data(chunk)))))
}

/// A body that sends one byte, waits, sends the next, without end.
fn dripping(pause: Duration) -> impl Body<Data = Bytes, Error = Infallible> {
    StreamBody::new(stream::repeat(()).then(move |()| async move {
        sleep(pause).await;
        Ok(Frame::data(Bytes::from_static(b"x")))
    }))
}

#[tokio::test]
async fn a_body_in_one_piece_is_handed_on_without_a_copy() {
    let sent = Bytes::from(vec![7; 500]);
    let read = read(Full::new(sent.clone()), LIMITS, &memory()).await.unwrap();
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
    assert_eq!(read(Unreadable, LIMITS, &memory()).await.unwrap_err().kind, FaultKind::TooLarge);
}

#[tokio::test]
async fn a_body_of_unstated_length_is_refused_at_the_first_byte_beyond_the_limit() {
    let endless =
        StreamBody::new(stream::repeat(()).map(|()| Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; 100])))));
    assert_eq!(read(endless, LIMITS, &memory()).await.unwrap_err().kind, FaultKind::TooLarge);
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_taken() {
    let body = chunks(vec![Bytes::from(vec![1; 999]), Bytes::from(vec![2; 1])]);
    assert_eq!(read(body, LIMITS, &memory()).await.unwrap().len(), 1000);
}

// P8
#[tokio::test(start_paused = true)]
async fn a_body_that_stops_is_let_go_after_the_pause() {
    let body = StreamBody::new(
        stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"half"))) }).chain(stream::pending()),
    );
    let started = Instant::now();
    assert_eq!(read(body, LIMITS, &memory()).await.unwrap_err().kind, FaultKind::RequestTimeout);
    assert!(started.elapsed() <= Duration::from_millis(15_100), "{:?}", started.elapsed());
}

// P8, right E2
#[tokio::test(start_paused = true)]
async fn a_body_that_drips_is_let_go_soon_after_its_first_moments() {
    let started = Instant::now();
    let fault = read(dripping(Duration::from_secs(1)), LIMITS, &memory()).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::RequestTimeout);
    assert!((15..=23).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

/// A body of pieces of this size, one each second.
fn paced(first: usize, bytes: usize, seconds: usize) -> impl Body<Data = Bytes, Error = Infallible> {
    let chunks = stream::iter(0..seconds).then(move |number| async move {
        sleep(Duration::from_secs(1)).await;
        Ok(Frame::data(Bytes::from(vec![0; if number == 0 { first } else { bytes }])))
    });
    StreamBody::new(chunks)
}

// right E2
#[tokio::test(start_paused = true)]
async fn a_body_comes_at_16_kib_a_second_and_early_bytes_earn_no_time() {
    let limits = BodyLimits { bytes: 8 << 20, text_bytes: 8 << 20, ..LIMITS };
    let memory = RequestMemory::new(16 << 20);
    let steady = read(paced(16_400, 16_400, 100), limits, &memory).await.unwrap();
    assert_eq!(steady.len(), 1_640_000);
    let started = Instant::now();
    let fault = read(paced(4 << 20, 1024, 100), limits, &memory).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::RequestTimeout);
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

// right E2
#[tokio::test]
async fn what_is_collected_is_taken_from_the_budget_first_and_given_back_at_the_end() {
    let limits = BodyLimits { bytes: 4000, text_bytes: 4000, ..LIMITS };
    let memory = RequestMemory::new(3000);
    let body = read(chunks(vec![Bytes::from(vec![1; 900]); 3]), limits, &memory).await.unwrap();
    assert!(memory.free() <= 300);
    let fault = read(chunks(vec![Bytes::from(vec![1; 500])]), limits, &memory).await.unwrap_err();
    assert_eq!((fault.kind, fault.retry_after.is_some()), (FaultKind::OutOfMemory, true));
    drop(body);
    assert_eq!(memory.free(), 3000);
    assert_eq!(
        read(Full::new(Bytes::from(vec![1; 3001])), limits, &memory).await.unwrap_err().kind,
        FaultKind::OutOfMemory
    );
    assert_eq!(memory.free(), 3000);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_callers_fault_and_the_cause_goes_to_the_log() {
    let body = StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from_static(b"{"))), Err(io::Error::other("cut"))]));
    let fault = read(body, LIMITS, &memory()).await.unwrap_err();
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
        let body = chunks(cuts.into_iter().map(Bytes::from).collect());
        prop_assert_eq!(runtime.block_on(read(body, LIMITS, &memory())).unwrap(), whole);
    }
}
