//! Submissions to a file that several stores have open.

use amalgam_store_sqlite::SqliteOptions;

use super::{Home, runtime};
use crate::contract::steps::race;

#[test]
fn submissions_to_two_stores_of_one_file_have_one_first() {
    // C-11
    let home = Home::new();
    runtime().block_on(race(&[home.open(SqliteOptions::default()), home.open(SqliteOptions::default())]));
    for table in ["agent_sessions", "agent_steps", "mode_changes"] {
        assert_eq!(home.count(table), 0, "something is left in {table}");
    }
}
