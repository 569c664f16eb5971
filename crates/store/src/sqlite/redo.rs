//! The redo log: what turns have written, on disk ahead of the database.
//!
//! A commit of SQLite writes whole pages, and the last page of every table again and again. So a step of a turn is
//! acknowledged when the statements that it ran are in this file and flushed; the transaction that ran them stays open and
//! is committed with many steps in it (`writer.rs`). What a crash takes out of the database is run again from here when it
//! is opened next (`replay.rs`).
//!
//! The file is written over in turns: two segments, each used again once the database has everything in it on disk. A batch
//! (`batch.rs`) begins a block and has a number, one more than the last; the database knows the number of the last batch that
//! it holds. Which database a file belongs to is part of every batch's checksum. Where the system can, blocks go past its
//! cache: nobody reads them again, and a flush finds nothing to look for.

mod batch;
mod replay;

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use super::file;

pub(super) use self::{
    batch::{Again, Batch, Statement},
    replay::{apply, recover, unapplied},
};

/// Two of them. A segment is worth about a thousand turns; the database's own log is flushed once for each.
const SEGMENT_BYTES: u64 = 4 * 1024 * 1024;

/// What disks write as a whole.
const BLOCK: usize = 4096;

/// The number of a batch. The first one of a database is 1.
pub(super) type Sequence = i64;

/// What a database says about its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// A random number that the database was given when it was made.
    pub(super) identity: i64,
    /// The last batch that the database holds.
    pub(super) applied: Sequence,
}

/// The file, in the hands of whoever appends to it.
#[derive(Debug)]
pub(super) struct Redo {
    file: RedoFile,
    identity: i64,
    /// The last number that was given.
    last: Sequence,
    /// Which segment is written to, and how much of it.
    segment: usize,
    used: u64,
    /// The last batch in each.
    ends: [Sequence; 2],
    /// The last batch may be there or not: nothing follows it before the database has its number.
    in_doubt: bool,
    blocks: Blocks,
}

impl Redo {
    /// An empty file for a database that holds everything that was in it.
    pub(super) fn begin(file: RedoFile, known: Known) -> Self {
        Self {
            file,
            identity: known.identity,
            last: known.applied,
            segment: 0,
            used: 0,
            ends: [0; 2],
            in_doubt: false,
            blocks: Blocks::default(),
        }
    }

    /// A file whose batches up to `last` the database has yet to get. Nothing is appended before it has.
    pub(super) fn resume(file: RedoFile, known: Known, last: Sequence) -> Self {
        Self { last, in_doubt: true, ..Self::begin(file, known) }
    }

    /// The last number that was given, also where writing failed: nobody else gets it.
    pub(super) fn last(&self) -> Sequence {
        self.last
    }

    /// Whether a batch finds room, given that the database has everything up to `flushed` on disk.
    pub(super) fn has_room(&self, batch: &Batch, flushed: Sequence) -> bool {
        let length = whole_blocks(batch.len()) as u64;
        let fits_here = self.used + length <= SEGMENT_BYTES;
        let fits_there = length <= SEGMENT_BYTES && self.ends[1 - self.segment] <= flushed;
        !self.in_doubt && (fits_here || fits_there)
    }

    /// Appends a batch that finds room, and waits until it is on disk. Gives its bytes.
    pub(super) fn append<'b>(&mut self, batch: &'b mut Batch) -> io::Result<&'b [u8]> {
        self.last += 1;
        self.in_doubt = true;
        let bytes = batch.seal(self.identity, self.last);
        let blocks = self.blocks.filled(bytes);
        let length = blocks.len() as u64;
        if self.used + length > SEGMENT_BYTES {
            self.segment = 1 - self.segment;
            self.used = 0;
        }
        let at = self.segment as u64 * SEGMENT_BYTES + self.used;
        self.file.file.write_all_at(blocks, at)?;
        self.file.file.sync_data()?;
        self.used += length;
        self.ends[self.segment] = self.last;
        self.in_doubt = false;
        Ok(bytes)
    }

    /// The last batch of the segment that is not written to, if the database may not have it on disk.
    pub(super) fn waits_for(&self, flushed: Sequence) -> Option<Sequence> {
        Some(self.ends[1 - self.segment]).filter(|end| *end > flushed)
    }

    /// The database has everything on disk: the file is written from its beginning.
    pub(super) fn rewind(&mut self) {
        (self.segment, self.used, self.ends, self.in_doubt) = (0, 0, [0; 2], false);
    }

    /// Leaves nothing behind that would have to be looked at.
    pub(super) fn finish(self) -> io::Result<()> {
        self.file.clear()
    }
}

/// So many bytes fill whole blocks.
fn whole_blocks(bytes: usize) -> usize {
    bytes.next_multiple_of(BLOCK)
}

/// Memory that begins where a block may begin, as the system wants it for what goes past its cache.
#[derive(Debug, Default)]
struct Blocks(Vec<u8>);

impl Blocks {
    /// These bytes, and nothing up to the end of their last block.
    fn filled(&mut self, bytes: &[u8]) -> &[u8] {
        let length = whole_blocks(bytes.len());
        self.0.clear();
        self.0.reserve(length + BLOCK);
        let before = self.0.as_ptr().align_offset(BLOCK);
        self.0.resize(before, 0);
        self.0.extend_from_slice(bytes);
        self.0.resize(before + length, 0);
        self.0.get(before..).unwrap_or_default()
    }
}

/// The file beside a database, locked: nobody else runs what is in it, or writes to it.
#[derive(Debug)]
pub(super) struct RedoFile {
    file: File,
}

impl RedoFile {
    /// Any file, for tests.
    #[cfg(test)]
    pub(super) fn of(file: File) -> Self {
        Self { file }
    }

    /// The file, made if it is not there; waits for a command that has it for a moment.
    pub(super) fn take(database: &Path) -> io::Result<Option<Self>> {
        let begun = Instant::now();
        loop {
            match Self::lock(database, OpenOptions::new().create(true)) {
                Ok(None) if begun.elapsed() < file::LOCK_WAIT => thread::sleep(file::LOCK_PAUSE),
                taken => return flush_folder(database).and(taken),
            }
        }
    }

    /// The file, if it is there and nobody has it.
    pub(super) fn find(database: &Path) -> io::Result<Option<Self>> {
        match Self::lock(database, &mut OpenOptions::new()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found,
        }
    }

    fn lock(database: &Path, options: &mut OpenOptions) -> io::Result<Option<Self>> {
        let options = options.read(true).write(true).truncate(false).mode(0o600);
        // Not every file system can.
        let past_cache = options.clone().custom_flags(libc::O_DIRECT).open(path(database));
        let file = match past_cache {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => options.open(path(database))?,
            opened => opened?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// What is in it: both segments, each from its beginning.
    fn segments(&self, database: &Path) -> io::Result<[Vec<u8>; 2]> {
        let mut all = std::fs::read(path(database))?;
        let second = all.split_off(all.len().min(SEGMENT_BYTES as usize));
        Ok([all, second])
    }

    /// Copies what is in it to a file that nobody looks at.
    fn set_aside(&self, database: &Path) -> io::Result<PathBuf> {
        let aside = file::beside(database, "-redo.left");
        let mut copy = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        copy.write_all(&std::fs::read(path(database))?)?;
        copy.sync_all()?;
        flush_folder(database).map(|()| aside)
    }

    /// Forgets what is in it. The file itself stays: whoever waits for it has it open.
    fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.sync_all()
    }
}

/// A file that was just made is found after a power cut only if its folder is on disk too.
fn flush_folder(database: &Path) -> io::Result<()> {
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Where the file of a database is.
pub(super) fn path(database: &Path) -> PathBuf {
    file::beside(database, "-redo")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const KNOWN: Known = Known { identity: 7, applied: 40 };

    fn batch(length: usize) -> Batch {
        let mut batch = Batch::default();
        batch.statement("INSERT").value(&rusqlite::types::ToSqlOutput::from("x".repeat(length)));
        batch
    }

    fn redo(folder: &Path) -> Redo {
        Redo::begin(RedoFile::take(&folder.join("a.db")).unwrap().unwrap(), KNOWN)
    }

    #[test]
    fn a_segment_is_written_over_only_once_the_database_has_it_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut redo = redo(folder.path());
        let half = SEGMENT_BYTES as usize / 2;
        // Two do not fit into one segment with their heads.
        for number in [41, 42] {
            assert!(redo.has_room(&batch(half), 40));
            redo.append(&mut batch(half)).unwrap();
            assert_eq!(redo.last(), number);
        }
        assert_eq!(redo.waits_for(40), Some(41));
        assert!(redo.has_room(&batch(10), 40));
        assert!(!redo.has_room(&batch(half), 40));
        assert_eq!(redo.waits_for(41), None);
        assert!(redo.has_room(&batch(half), 41));
        redo.append(&mut batch(half)).unwrap();
        assert_eq!(redo.waits_for(41), Some(42));
        redo.rewind();
        assert!(redo.has_room(&batch(half), 40));
        assert!(!redo.has_room(&batch(SEGMENT_BYTES as usize), 43));
    }

    #[test]
    fn what_was_not_flushed_was_not_appended() {
        // S6: what is written here is taken, and cannot be flushed.
        let file = RedoFile::of(OpenOptions::new().write(true).open("/dev/null").unwrap());
        let mut redo = Redo::begin(file, KNOWN);
        assert!(redo.append(&mut batch(10)).is_err());
        assert_eq!(redo.last(), 41, "the number may be on disk");
        // Whatever came behind it would not be found: numbers follow each other without a gap.
        assert!(!redo.has_room(&batch(10), 40));
        redo.rewind();
        assert!(redo.has_room(&batch(10), 40));
    }

    #[test]
    fn a_file_is_in_one_hand_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        assert!(RedoFile::find(&database).unwrap().is_none());
        let taken = RedoFile::take(&database).unwrap().unwrap();
        assert!(RedoFile::find(&database).unwrap().is_none());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| RedoFile::take(&database).unwrap().is_some());
            thread::sleep(Duration::from_millis(30));
            drop(taken);
            assert!(waiting.join().unwrap());
        });
        assert!(RedoFile::find(&database).unwrap().is_some());
    }
}
