//! Runs again what the redo log holds and the database lost.

use std::path::Path;

use tracing::{info, warn};

use super::{Known, RedoFile, Sequence, batch::Found, whole_blocks};
use crate::sqlite::{failure::Failure, file, query::Database};

/// What the database at `path` lacks is put into it. Called before the schema is looked at: statements fit the schema that
/// they were run on.
pub(in crate::sqlite) fn recover(path: &Path, redo: &RedoFile) -> Result<(), Failure> {
    let segments = redo.segments(path)?;
    if segments.iter().all(Vec::is_empty) {
        return Ok(());
    }
    let connection = file::open_writer(path, None)?;
    let database = Database::new(&connection);
    database.begin()?;
    if let Some(known) = database.redo()? {
        let (follow, apart) = newer(known, &segments);
        if let Some(last) = follow.last() {
            follow.iter().try_for_each(|batch| again(database, *batch))?;
            database.mark(last.number)?;
            info!(batches = follow.len(), "what the database had lost is written again");
        }
        if apart > 0 {
            // The database is older than the log, such as one from a backup. Somebody may want to put the other one back.
            let aside = redo.set_aside(path)?;
            warn!(batches = apart, file = %aside.display(), "a redo log that does not continue the database was set aside");
        }
    }
    database.commit()?;
    Ok(redo.clear()?)
}

/// The batches that the database at `path` lacks, to be run again later, and the number of the last one.
pub(in crate::sqlite) fn unapplied(path: &Path, redo: &RedoFile, known: Known) -> Result<(Vec<u8>, Sequence), Failure> {
    let segments = redo.segments(path)?;
    let (follow, apart) = newer(known, &segments);
    if apart > 0 {
        return Err(Failure::Refused("its redo log does not continue it, and there is no room to set that aside"));
    }
    let last = follow.last().map_or(known.applied, |batch| batch.number);
    Ok((follow.into_iter().flat_map(|batch| batch.bytes).copied().collect(), last))
}

/// The batches that follow the last one that the database holds, in order and without a gap; and how many there are that
/// follow nothing.
fn newer<'s>(known: Known, segments: &'s [Vec<u8>; 2]) -> (Vec<Found<'s>>, usize) {
    let mut found: Vec<Found<'s>> = segments.iter().flat_map(|segment| batches(known.identity, segment)).collect();
    found.retain(|batch| batch.number > known.applied);
    found.sort_by_key(|batch| batch.number);
    let follow = (known.applied + 1..).zip(&found).take_while(|(number, batch)| batch.number == *number).count();
    let apart = found.len() - follow;
    found.truncate(follow);
    (found, apart)
}

/// The batches at the beginning of a segment. Where one has a smaller number than the one before it, the segment was written
/// over up to there.
fn batches(identity: i64, segment: &[u8]) -> impl Iterator<Item = Found<'_>> {
    let (mut rest, mut last) = (segment, Sequence::MIN);
    std::iter::from_fn(move || {
        let (batch, length) = Found::read(identity, rest).filter(|(batch, _)| batch.number > last)?;
        (rest, last) = (rest.get(whole_blocks(length)..).unwrap_or_default(), batch.number);
        Some(batch)
    })
}

/// Runs batches of this process again, in the transaction that is open.
pub(in crate::sqlite) fn apply(database: Database<'_>, mut batches: &[u8]) -> Result<(), Failure> {
    while let Some((batch, length)) = Found::own(batches) {
        again(database, batch)?;
        batches = batches.get(length..).unwrap_or_default();
    }
    Ok(())
}

fn again(database: Database<'_>, batch: Found<'_>) -> Result<(), Failure> {
    let ran = batch.each(|statement| database.again(statement));
    ran.unwrap_or_else(|| Err(Failure::Broken(format!("batch {} of the redo log is not in order", batch.number))))
}
