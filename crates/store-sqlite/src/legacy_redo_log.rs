//! Applies the redo log that an older server left beside its database, once, and removes it. Nothing writes this format
//! any more.
//!
//! Older servers acknowledged a step of a turn when its SQL statements were in `NAME-redo` and flushed, ahead of the
//! database. The file has two segments of 4 MiB that were used alternately. Each contains batches from its beginning,
//! and each batch begins a block of 4 KiB. Older batches that were not overwritten may follow the last one.
//!
//! ```text
//! batch: length u32 · checksum u32 · number i64 · parts
//! part:  0 · length u32 · text                                       the next SQL text that statements refer to
//!        1 · which text u16 · changed rows i64 · count u16 · values  a statement as it was run
//! value: 0 NULL · 1 i64 · 2 f64 · 3 length u32, text · 4 length u32, bytes
//! ```
//!
//! Numbers are little-endian. The CRC-32 covers the identity of the database, the length, and everything after the
//! checksum. The table `redo` has the identity and the number of the last batch in the database. The table stays, so
//! that a log can be applied after a downgrade and another upgrade.
//!
//! A batch is needed if its number is higher than the one in the table. It was acknowledged if it was flushed as a whole,
//! and each was flushed before the next was written. So the last batch may be incomplete: the server died while it wrote
//! it, and acknowledged none of it. Anything else that is missing is damage, and the store does not open.
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use rusqlite::{
    Connection, MAIN_DB, OptionalExtension as _, TransactionBehavior,
    types::{ToSqlOutput, ValueRef},
    wal::CheckpointMode,
};
use tracing::{info, warn};

use super::file;

const SEGMENT_BYTES: usize = 4 * 1024 * 1024;
const BLOCK_BYTES: usize = 4096;
const HEAD_BYTES: usize = 16;

/// Why the redo log of an older server cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum RedoLogError {
    /// A needed batch is not there in full.
    #[error(
        "batch {number} is damaged, and acknowledged turns would be lost: restore the file from a copy, or move it away to \
         start without the turns that only it has"
    )]
    Damaged {
        /// The number of the batch.
        number: i64,
    },
    /// The log does not continue the database.
    #[error(
        "the database has everything up to batch {applied} and the log continues with batch {found}, as after a backup was \
         restored: restore the database that belongs to the log, or move the log away to start without the turns that only \
         it has"
    )]
    Gap {
        /// The last batch that the database or the log has before the gap.
        applied: i64,
        /// The first one after it.
        found: i64,
    },
    /// Nothing in the log belongs to the database.
    #[error(
        "it belongs to another database, or is damaged: restore the database that it belongs to, or move the file away to \
         start without the turns that only it has"
    )]
    Foreign,
    /// The tables are not those that the log was written for.
    #[error(
        "batch {number} does not fit the database, whose tables or rows were changed in the meantime: restore the database \
         that the log belongs to, or move the log away to start without the turns that only it has"
    )]
    DoesNotFit {
        /// The number of the batch.
        number: i64,
        /// The error of SQLite; `None` if a statement changed another number of rows than it should.
        #[source]
        source: Option<rusqlite::Error>,
    },
    /// The database cannot be written.
    #[error("could not write its turns to the database")]
    Database(#[from] rusqlite::Error),
    /// The file cannot be read or removed.
    #[error("could not read or remove it")]
    File(#[from] io::Error),
}

/// Where the redo log of a database is.
pub(super) fn path(database: &Path) -> PathBuf {
    file::beside(database, "-redo")
}

/// Puts what only the redo log has into the database, then removes the log. Called before migrations: statements fit the
/// schema that they were run on.
pub(super) fn apply(database: &Path) -> Result<(), RedoLogError> {
    let path = path(database);
    let Some(locked) = lock(&path)? else { return Ok(()) };
    let log = fs::read(&path)?;
    if !log.is_empty() {
        let batches = apply_to(&mut file::open_writer(database, None)?, &log)?;
        info!(batches, "applied the redo log of an older server");
    }
    fs::remove_file(&path)?;
    file::flush_folder(database)?;
    drop(locked);
    Ok(())
}

/// The file, locked; `None` if it does not exist, or an older server uses it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            // Another process may have applied and removed it while this one waited.
            Ok(()) => return Ok(path.try_exists()?.then_some(file)),
            Err(TryLockError::WouldBlock) if begun.elapsed() < file::LOCK_WAIT => thread::sleep(file::LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                warn!("another process uses the redo log `{}`, which is left alone", path.display());
                return Ok(None);
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Applies a log; how many batches the database lacked.
fn apply_to(connection: &mut Connection, log: &[u8]) -> Result<usize, RedoLogError> {
    const HAS_TABLE: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'redo'";
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if transaction.query_row(HAS_TABLE, [], |_| Ok(())).optional()?.is_none() {
        return Err(RedoLogError::Foreign);
    }
    let (identity, applied) = transaction
        .query_row("SELECT identity, applied FROM redo", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .ok_or(RedoLogError::Foreign)?;
    let needed = needed(log, identity, applied)?;
    for batch in &needed {
        batch.run(&transaction)?;
    }
    // Also when nothing was needed: older servers did not flush every commit, and this commit flushes all before it.
    let last = needed.last().map_or(applied, |batch| batch.number);
    transaction.execute("UPDATE redo SET applied = ?1", [last])?;
    transaction.commit()?;
    // Another process that reads is no reason to fail: the write-ahead log has everything.
    if let Err(error) = connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE) {
        info!("the write-ahead log is checkpointed later: {error}");
    }
    Ok(needed.len())
}

/// The batches that a database lacks, in order. Fails if one of them is missing or damaged.
fn needed(log: &[u8], identity: i64, applied: i64) -> Result<Vec<Batch<'_>>, RedoLogError> {
    let (first, second) = log.split_at(log.len().min(SEGMENT_BYTES));
    let segments = [Segment::read(identity, first), Segment::read(identity, second)];
    let mut batches: Vec<Batch<'_>> = segments.iter().flat_map(|segment| segment.batches.iter().copied()).collect();
    batches.retain(|batch| batch.number > applied);
    batches.sort_by_key(|batch| batch.number);
    for (expected, batch) in (applied + 1..).zip(&batches) {
        if batch.number != expected {
            return Err(RedoLogError::Gap { applied: expected - 1, found: batch.number });
        }
    }
    let next = batches.last().map_or(applied, |batch| batch.number) + 1;
    // If no batch can be read, not even an older one, nothing shows that the log belongs to this database.
    let is_known =
        segments.iter().any(|segment| !segment.batches.is_empty() || segment.later(identity).next().is_some());
    match segments.iter().any(|segment| segment.is_damaged(identity, next)) {
        true if is_known => Err(RedoLogError::Damaged { number: next }),
        false if is_known || segments.iter().all(|segment| segment.is_incomplete(next)) => Ok(batches),
        _ => Err(RedoLogError::Foreign),
    }
}

/// A part of the file that was written from its beginning.
struct Segment<'l> {
    batches: Vec<Batch<'l>>,
    /// What follows them: nothing, older batches or pieces of them, or a batch that was not written in full.
    rest: &'l [u8],
    /// The number of bytes that a full segment would have after the batches.
    room: usize,
}

impl<'l> Segment<'l> {
    fn read(identity: i64, bytes: &'l [u8]) -> Self {
        let (mut batches, mut at) = (Vec::<Batch<'l>>::new(), 0);
        while let Some(batch) = Batch::read(identity, bytes.get(at..).unwrap_or_default())
            // A lower number than before: from here on the segment was not overwritten.
            && batches.last().is_none_or(|last| last.number < batch.number)
        {
            at += batch.bytes.len().next_multiple_of(BLOCK_BYTES);
            batches.push(batch);
        }
        Self { batches, rest: bytes.get(at..).unwrap_or_default(), room: SEGMENT_BYTES.saturating_sub(at) }
    }

    /// Whether batch `next` or a later one was in this segment and cannot be read. An older one is not needed.
    fn is_damaged(&self, identity: i64, next: i64) -> bool {
        let Some(head) = Head::read(self.rest) else { return false };
        let is_next = head.number == next || Batch::read_as(next, identity, self.rest).is_some();
        let is_unknown = self.batches.is_empty() && !head.is_blank() && !(1..next).contains(&head.number);
        (is_next || is_unknown) && !self.is_incomplete(next) || self.later(identity).any(|batch| batch.number >= next)
    }

    /// Whether the rest is blank, or batch `next` that was not written in full.
    fn is_incomplete(&self, next: i64) -> bool {
        Head::read(self.rest)
            .is_none_or(|head| head.is_blank() || head.number == next && head.is_cut_short(self.rest, self.room))
    }

    /// The readable batches after the first one that cannot be read.
    fn later(&self, identity: i64) -> impl Iterator<Item = Batch<'l>> {
        let blocks = (0..self.rest.len()).step_by(BLOCK_BYTES);
        blocks.filter_map(move |block| Batch::read(identity, self.rest.get(block..)?))
    }
}

#[derive(Debug, Clone, Copy)]
struct Head {
    length: usize,
    checksum: u32,
    number: i64,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut head = Fields(bytes);
        Some(Self { length: head.u32()? as usize, checksum: head.u32()?, number: head.i64()? })
    }

    /// Whether nothing was ever written here.
    fn is_blank(&self) -> bool {
        (self.length, self.checksum, self.number) == (0, 0, 0)
    }

    /// Whether the batch that begins `rest` was not written in full: the file ends before it does, or one of its blocks
    /// was never written.
    fn is_cut_short(&self, rest: &[u8], room: usize) -> bool {
        (HEAD_BYTES..=room).contains(&self.length)
            && rest
                .get(..self.length)
                .is_none_or(|batch| batch.chunks(BLOCK_BYTES).any(|block| block.iter().all(|byte| *byte == 0)))
    }
}

/// Statements that were run together.
#[derive(Debug, Clone, Copy)]
struct Batch<'l> {
    number: i64,
    bytes: &'l [u8],
}

impl<'l> Batch<'l> {
    /// The batch at the beginning of `bytes`, if there is a whole one of this database.
    fn read(identity: i64, bytes: &'l [u8]) -> Option<Self> {
        Self::read_as(Head::read(bytes)?.number, identity, bytes)
    }

    /// The same, if its number is damaged and was `number`.
    fn read_as(number: i64, identity: i64, bytes: &'l [u8]) -> Option<Self> {
        let head = Head::read(bytes)?;
        let bytes = bytes.get(..head.length)?;
        let covered = [&identity.to_le_bytes()[..], bytes.get(..4)?, &number.to_le_bytes(), bytes.get(HEAD_BYTES..)?];
        (crc32(covered) == head.checksum).then_some(Self { number, bytes })
    }

    fn run(&self, connection: &Connection) -> Result<(), RedoLogError> {
        let damaged = || RedoLogError::Damaged { number: self.number };
        let does_not_fit = |source| RedoLogError::DoesNotFit { number: self.number, source };
        let mut parts = Fields(self.bytes.get(HEAD_BYTES..).unwrap_or_default());
        let mut texts = Vec::new();
        while !parts.0.is_empty() {
            match parts.part(&mut texts).ok_or_else(damaged)? {
                None => {}
                Some(statement) => match statement.run(connection) {
                    Ok(true) => {}
                    Ok(false) => return Err(does_not_fit(None)),
                    // No room, a lock, a broken file: the log itself may be fine.
                    Err(error) if concerns_the_file(&error) => return Err(error.into()),
                    Err(error) => return Err(does_not_fit(Some(error))),
                },
            }
        }
        Ok(())
    }
}

fn concerns_the_file(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, NotADatabase, ReadOnly, SystemIoFailure,
    };
    matches!(
        error.sqlite_error_code(),
        Some(
            CannotOpen
                | DatabaseBusy
                | DatabaseCorrupt
                | DatabaseLocked
                | DiskFull
                | NotADatabase
                | ReadOnly
                | SystemIoFailure
        )
    )
}

#[derive(Debug)]
struct Statement<'l> {
    text: &'l str,
    values: Vec<ValueRef<'l>>,
    /// How many rows it changed when it was first run, where they were counted.
    changed: Option<u64>,
}

impl Statement<'_> {
    /// Runs it again; whether it changed as many rows as the first time.
    fn run(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let mut statement = connection.prepare_cached(self.text)?;
        for (index, value) in self.values.iter().enumerate() {
            statement.raw_bind_parameter(index + 1, ToSqlOutput::Borrowed(*value))?;
        }
        match self.changed {
            Some(changed) => Ok(statement.raw_execute()? as u64 == changed),
            None => {
                let mut rows = statement.raw_query();
                while rows.next()?.is_some() {}
                Ok(true)
            }
        }
    }
}

/// What is left to be read.
#[derive(Debug, Clone, Copy)]
struct Fields<'l>(&'l [u8]);

impl<'l> Fields<'l> {
    /// A statement, or `None` if the part is a text, which is added to `texts`.
    fn part(&mut self, texts: &mut Vec<&'l str>) -> Option<Option<Statement<'l>>> {
        match self.u8()? {
            0 => texts.push(std::str::from_utf8(self.bytes()?).ok()?),
            1 => {
                let text = *texts.get(usize::from(self.u16()?))?;
                let changed = u64::try_from(self.i64()?).ok();
                let values = (0..self.u16()?).map(|_| self.value()).collect::<Option<_>>()?;
                return Some(Some(Statement { text, values, changed }));
            }
            _ => return None,
        }
        Some(None)
    }

    fn value(&mut self) -> Option<ValueRef<'l>> {
        Some(match self.u8()? {
            0 => ValueRef::Null,
            1 => ValueRef::Integer(self.i64()?),
            2 => ValueRef::Real(self.array().map(f64::from_le_bytes)?),
            3 => ValueRef::Text(self.bytes()?),
            4 => ValueRef::Blob(self.bytes()?),
            _ => return None,
        })
    }

    fn bytes(&mut self) -> Option<&'l [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn take(&mut self, length: usize) -> Option<&'l [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

/// CRC-32 as in zip and PNG, bit by bit: a log has at most 8 MiB and is read once.
fn crc32<const N: usize>(pieces: [&[u8]; N]) -> u32 {
    let bytes = pieces.into_iter().flatten();
    !bytes.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
#[path = "legacy_redo_log_tests.rs"]
mod tests;
