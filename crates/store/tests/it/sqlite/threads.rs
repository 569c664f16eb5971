//! Threads that have become long.

use amalgam_store::sqlite::Options;

use super::{Home, runtime};
use crate::contract::sessions::compare_long_with_short;

#[test]
fn a_long_thread_is_as_fast_as_a_short_one() {
    let home = Home::new();
    let store = home.open(Options::default());
    runtime().block_on(compare_long_with_short(&store, async |session_id, messages| {
        // Far behind the numbers that are in use.
        let fill = "INSERT INTO messages (id, tenant_id, user_id, session_id, role, created_at, content)
            WITH RECURSIVE number (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM number WHERE value < ?2)
            SELECT -(?1 * 100000 + value), 1, 'anna', ?1, 'user', 0, 'what was said long ago' FROM number";
        home.look().execute(fill, (session_id, messages)).unwrap();
    }));
}
