//! Limits across processes: several handles, and answers that are lost.

use super::given::{Fresh, runtime};
use crate::contract::limits::race;

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn racing_clients_of_two_processes_never_exceed_a_limit() {
    let database = Fresh::make();
    runtime().block_on(async {
        let stores = [database.store().await, database.store().await];
        race(&stores).await;
    });
}
