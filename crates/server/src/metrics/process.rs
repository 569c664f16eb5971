//! What the system knows about this process and its disk, read when metrics are requested.

use std::{fs, path::Path};

/// Bytes of memory in use, open files and CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ProcessUse {
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) open_files: u64,
    pub(super) cpu_seconds: f64,
}

/// The size of a page and the length of a clock tick on the systems that are supported (Linux on x86-64 and arm64 with 4 KiB pages).
const PAGE_BYTES: u64 = 4096;
const TICKS_PER_SECOND: f64 = 100.0;

impl ProcessUse {
    /// Reads `/proc`; what cannot be read is 0.
    pub(super) fn read() -> Self {
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let mut pages = statm.split(' ').map(|number| number.trim().parse::<u64>().unwrap_or_default());
        let (size, resident) = (pages.next().unwrap_or_default(), pages.next().unwrap_or_default());
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The fields after the command, which is in parentheses and may contain spaces; 14 and 15 are user and system time.
        let ticks: f64 = stat.rsplit_once(')').map_or(0.0, |(_, rest)| {
            rest.split_whitespace().skip(11).take(2).filter_map(|number| number.parse::<f64>().ok()).sum()
        });
        Self {
            resident_bytes: resident * PAGE_BYTES,
            virtual_bytes: size * PAGE_BYTES,
            open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            cpu_seconds: ticks / TICKS_PER_SECOND,
        }
    }
}

/// The space of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskSpace {
    pub(super) size_bytes: u64,
    /// What this process may still write.
    pub(super) free_bytes: u64,
}

impl DiskSpace {
    /// Of the disk that a folder is on.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some(Self { size_bytes: bytes(disk.f_blocks), free_bytes: bytes(disk.f_bavail) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_uses_memory_and_files() {
        let process = ProcessUse::read();
        assert!(process.resident_bytes > 100_000 && process.virtual_bytes >= process.resident_bytes, "{process:?}");
        assert!(process.open_files >= 3, "{process:?}");
    }

    #[test]
    fn a_disk_has_a_size_and_free_space_and_a_missing_folder_none() {
        let disk = DiskSpace::read(Path::new("/")).unwrap();
        assert!(disk.size_bytes > 1_000_000 && disk.free_bytes <= disk.size_bytes, "{disk:?}");
        assert_eq!(DiskSpace::read(Path::new("/there/is/no/such/folder")), None);
    }
}
