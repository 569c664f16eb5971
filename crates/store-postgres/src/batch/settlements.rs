//! The reservations of limits that end with a batch of writes.

use amalgam_core::store::{HoldSettlement, WriteOutcome};
use amalgam_store::limits;

use crate::{
    connection::{Connection, PostgresFailure},
    job::Job,
};

/// Settles the reservations of all writes that were not lost. Runs after everything that other batches lock before,
/// except for conversations, which all batches lock last.
pub(super) async fn settle(
    connection: &Connection,
    jobs: &[Job],
    written: &[WriteOutcome],
) -> Result<(), PostgresFailure> {
    let kept = jobs.iter().zip(written).filter(|(_, written)| **written == WriteOutcome::Kept);
    let settlements: Vec<HoldSettlement> = kept.flat_map(|(job, _)| job.write.settlements.iter().cloned()).collect();
    match settlements.is_empty() {
        true => Ok(()),
        false => limits::settle(connection, &settlements).await,
    }
}
