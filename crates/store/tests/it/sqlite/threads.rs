//! Threads that have become long.

use std::time::Duration;

use amalgam_store_sqlite::SqliteOptions;

use super::{Home, runtime};
use crate::{
    contract::sessions::talk,
    given::{HERE, anna},
};

/// The time that all threads of this process have worked.
fn worked() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let nanoseconds = threads.filter_map(|thread| {
        let told = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        told.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

#[test]
fn a_turn_in_a_long_thread_is_no_more_work_than_in_a_short_one() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    runtime().block_on(async {
        let anna = anna();
        let mut threads = Vec::new();
        for (profile, messages) in [("long", 50_000), ("short", 20)] {
            let ticket = talk(&store, &anna, Some(profile), HERE, "first").await;
            // Far behind the numbers that are in use.
            let fill = "INSERT INTO messages (id, tenant_id, user_id, session_id, role, created_at, content)
                WITH RECURSIVE number (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM number WHERE value < ?2)
                SELECT -(?1 * 100000 + value), 1, 'anna', ?1, 'user', 0, 'what was said long ago' FROM number";
            home.look().execute(fill, (ticket.session_id, messages)).unwrap();
            threads.push((profile, Duration::MAX));
        }
        // Alternating, and the shortest of each: other load on the machine affects both.
        for _ in 0..25 {
            for (profile, least) in &mut threads {
                let before = worked();
                talk(&store, &anna, Some(profile), HERE, "again").await;
                *least = worked().saturating_sub(before).min(*least);
            }
        }
        let [(_, long), (_, short)] = threads[..] else { panic!("two threads") };
        assert!(long < 3 * short + Duration::from_millis(2), "{long:?} in the long one, {short:?} in the short one");
    });
}
