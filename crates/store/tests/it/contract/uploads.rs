//! Files that callers have uploaded.

use amalgam_core::store::{FileListing, FileRecord, Order, Retention};
use bytes::Bytes;
use tokio::task::JoinSet;

use super::retention::KEEP_ALL;
use crate::given::*;

const ROOM: u64 = 1000;
const ALL: FileListing<'static> = FileListing { purpose: None, after: None, order: Order::Ascending, limit: 99 };

fn file(id: &str, bytes: usize) -> FileRecord {
    FileRecord {
        id: id.into(),
        filename: "Größe \"x\".rs".into(),
        purpose: "assistants".into(),
        media_type: "text/x-rust".into(),
        bytes: bytes as u64,
        created_at_ms: NOW,
        expires_at_ms: None,
    }
}

fn content(bytes: usize) -> Bytes {
    (0..bytes).map(|number| number.to_le_bytes()[0]).collect()
}

/// Puts a file as long as it says.
async fn put(store: &Engine, file: FileRecord) -> bool {
    let content = content(usize::try_from(file.bytes).unwrap());
    store.put_file(&anna(), file, content, ROOM).await.unwrap()
}

async fn ids(store: &Engine, listing: FileListing<'_>, now_ms: u64) -> Vec<String> {
    let found = store.files(&anna(), listing, now_ms).await.unwrap();
    found.into_iter().map(|file| file.id).collect()
}

pub(crate) async fn a_file_is_read_back_as_it_was_put(store: Engine) {
    let files = [FileRecord { expires_at_ms: Some(NOW + 5), ..file("file_1", 700) }, file("file_2", 0)];
    for file in &files {
        assert!(put(&store, file.clone()).await);
        assert_eq!(store.file(&anna(), &file.id, NOW).await.unwrap().as_ref(), Some(file));
        let read = store.file_content(&anna(), &file.id, NOW).await.unwrap();
        assert_eq!(read, Some((file.clone(), content(usize::try_from(file.bytes).unwrap()))));
    }
    assert_eq!(store.files(&anna(), ALL, NOW).await.unwrap(), files);
    assert_eq!(store.file(&anna(), "file_3", NOW).await.unwrap(), None);
    assert_eq!(store.file_content(&anna(), "file_3", NOW).await.unwrap(), None);

    assert!(store.delete_file(&anna(), "file_1").await.unwrap());
    assert!(!store.delete_file(&anna(), "file_1").await.unwrap());
    assert_eq!(store.file(&anna(), "file_1", NOW).await.unwrap(), None);
    assert_eq!(store.file_content(&anna(), "file_1", NOW).await.unwrap(), None);
    assert_eq!(ids(&store, ALL, NOW).await, ["file_2"]);
    // Nothing of the old one is left under its name.
    assert!(put(&store, file("file_1", 3)).await);
    assert_eq!(store.file_content(&anna(), "file_1", NOW).await.unwrap(), Some((file("file_1", 3), content(3))));
}

pub(crate) async fn a_large_file_survives(store: Engine) {
    let file = file("file_1", 5 << 20);
    let bytes = content(5 << 20);
    assert!(store.put_file(&anna(), file.clone(), bytes.clone(), u64::MAX).await.unwrap());
    let (record, read) = store.file_content(&anna(), "file_1", NOW).await.unwrap().unwrap();
    assert_eq!(record, file);
    assert!(read == bytes, "what is in it has changed");
}

pub(crate) async fn files_are_listed_by_age_and_purpose_in_pages(store: Engine) {
    for (number, purpose) in ["user_data", "vision", "user_data", "vision", "user_data"].into_iter().enumerate() {
        assert!(put(&store, FileRecord { purpose: purpose.into(), ..file(&format!("file_{number}"), 1) }).await);
    }
    let all = ["file_0", "file_1", "file_2", "file_3", "file_4"];
    let down = ["file_4", "file_3", "file_2", "file_1", "file_0"];
    let downwards = FileListing { order: Order::Descending, ..ALL };
    assert_eq!(ids(&store, ALL, NOW).await, all);
    assert_eq!(ids(&store, downwards, NOW).await, down);
    assert_eq!(ids(&store, FileListing { limit: 2, ..ALL }, NOW).await, all[..2]);
    assert_eq!(ids(&store, FileListing { limit: 2, after: Some("file_1"), ..ALL }, NOW).await, all[2..4]);
    assert_eq!(ids(&store, FileListing { limit: 2, after: Some("file_3"), ..downwards }, NOW).await, down[2..4]);
    assert_eq!(ids(&store, FileListing { after: Some("file_4"), ..ALL }, NOW).await, [""; 0]);

    let seen = FileListing { purpose: Some("vision"), ..ALL };
    assert_eq!(ids(&store, seen, NOW).await, ["file_1", "file_3"]);
    assert_eq!(ids(&store, FileListing { order: Order::Descending, ..seen }, NOW).await, ["file_3", "file_1"]);
    assert_eq!(ids(&store, FileListing { after: Some("file_1"), ..seen }, NOW).await, ["file_3"]);
    let before = FileListing { after: Some("file_3"), order: Order::Descending, limit: 1, ..seen };
    assert_eq!(ids(&store, before, NOW).await, ["file_1"]);
    assert_eq!(ids(&store, FileListing { purpose: Some("other"), ..ALL }, NOW).await, [""; 0]);
}

pub(crate) async fn a_tenant_has_room_for_so_many_bytes(store: Engine) {
    assert!(!put(&store, file("file_0", 1001)).await);
    assert!(put(&store, file("file_1", 600)).await);
    assert!(!put(&store, file("file_2", 401)).await);
    assert_eq!(ids(&store, ALL, NOW).await, ["file_1"], "what is refused leaves no trace");
    assert!(put(&store, file("file_3", 400)).await);
    let [bert, elsewhere] = strangers();
    assert!(!store.put_file(&bert, file("file_4", 1), content(1), ROOM).await.unwrap(), "users share the room");
    assert!(store.put_file(&elsewhere, file("file_4", 1000), content(1000), ROOM).await.unwrap());
    assert!(store.delete_file(&anna(), "file_1").await.unwrap());
    assert!(store.put_file(&bert, file("file_4", 600), content(600), ROOM).await.unwrap());
    assert!(!put(&store, file("file_5", 1)).await);

    // What has expired takes no room, whether it is cleared away or not.
    assert!(store.delete_file(&bert, "file_4").await.unwrap());
    assert!(put(&store, FileRecord { expires_at_ms: Some(NOW + 5), ..file("file_6", 600) }).await);
    assert!(!put(&store, FileRecord { created_at_ms: NOW + 4, ..file("file_7", 600) }).await);
    assert!(put(&store, FileRecord { created_at_ms: NOW + 5, ..file("file_7", 600) }).await);
}

pub(crate) async fn racing_uploads_do_not_overfill_the_room(store: Engine) {
    let mut racing = JoinSet::new();
    for number in 0..24 {
        let store = store.clone();
        racing.spawn(async move { put(&store, file(&format!("file_{number:02}"), 150)).await });
    }
    assert_eq!(racing.join_all().await.into_iter().filter(|kept| *kept).count(), 6);
    assert_eq!(ids(&store, ALL, NOW).await.len(), 6);
}

pub(crate) async fn a_file_that_has_expired_is_not_there_and_is_cleared_away(store: Engine) {
    let expiring = |id: &str, at| FileRecord { expires_at_ms: Some(at), ..file(id, 10) };
    for file in [expiring("file_1", NOW + 5), expiring("file_2", NOW + 50), file("file_3", 10)] {
        assert!(put(&store, file).await);
    }
    assert_eq!(ids(&store, ALL, NOW + 4).await, ["file_1", "file_2", "file_3"]);
    let later = NOW + 5;
    assert_eq!(ids(&store, ALL, later).await, ["file_2", "file_3"]);
    let of_purpose = FileListing { purpose: Some("assistants"), order: Order::Descending, ..ALL };
    assert_eq!(ids(&store, of_purpose, later).await, ["file_3", "file_2"]);
    assert_eq!(store.file(&anna(), "file_1", later).await.unwrap(), None);
    assert_eq!(store.file_content(&anna(), "file_1", later).await.unwrap(), None);

    assert_eq!(store.prune(operator(), KEEP_ALL).await.unwrap().rows, 0);
    let pruned = Retention { files_before_ms: NOW + 6, ..KEEP_ALL };
    assert!(store.prune(operator(), pruned).await.unwrap().rows > 0);
    assert_eq!(store.prune(operator(), pruned).await.unwrap().rows, 0);
    assert_eq!(ids(&store, ALL, NOW).await, ["file_2", "file_3"], "whatever time it is said to be");
    assert!(store.prune(operator(), Retention { files_before_ms: u64::MAX >> 1, ..KEEP_ALL }).await.unwrap().rows > 0);
    assert_eq!(ids(&store, ALL, NOW).await, ["file_3"], "what has no end stays");
}

pub(crate) async fn files_of_others_look_missing(store: Engine) {
    // S10
    assert!(put(&store, file("file_1", 10)).await);
    for stranger in strangers() {
        assert_eq!(store.files(&stranger, ALL, NOW).await.unwrap(), []);
        assert_eq!(store.file(&stranger, "file_1", NOW).await.unwrap(), None);
        assert_eq!(store.file_content(&stranger, "file_1", NOW).await.unwrap(), None);
        assert!(!store.delete_file(&stranger, "file_1").await.unwrap());
    }
    assert_eq!(store.file_content(&anna(), "file_1", NOW).await.unwrap(), Some((file("file_1", 10), content(10))));
}

pub(crate) async fn files_go_with_a_reset(store: Engine) {
    assert!(put(&store, file("file_1", 10)).await);
    store.reset(operator(), amalgam_core::store::Reset::Runtime(Vec::new())).await.unwrap();
    assert_eq!(ids(&store, ALL, NOW).await, [""; 0]);
    assert!(put(&store, file("file_1", 1000)).await, "and their room is free");
}
