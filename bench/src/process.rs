//! CPU time and memory of another process, from `/proc`.
//!
//! CPU is the sum of every thread's run time in nanoseconds (`schedstat`). A thread that ended takes its figure
//! with it; then the process totals of `stat` are used, which keep it but count in hundredths of a second.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, anyhow};

/// Linux reports process times in this unit on every architecture (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// What a process had used at one moment.
pub(crate) struct CpuSnapshot {
    ticks: u64,
    /// Nanoseconds on a processor by thread id; empty when the kernel does not keep them.
    threads: HashMap<u32, u64>,
}

impl CpuSnapshot {
    pub(crate) fn take(pid: u32) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} is gone"))?;
        let ticks = ticks_from_stat(&stat).ok_or_else(|| anyhow!("/proc/{pid}/stat has an unknown shape"))?;
        let mut threads = HashMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} is gone"))? {
            let entry = entry.context("listing threads")?;
            let thread_id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            // A thread may end between the listing and the reading; it is then simply not in the snapshot.
            let run_time = fs::read_to_string(entry.path().join("schedstat")).ok().and_then(|text| run_time(&text));
            if let (Some(thread_id), Some(run_time)) = (thread_id, run_time) {
                threads.insert(thread_id, run_time);
            }
        }
        Ok(Self { ticks, threads })
    }

    /// CPU time that the process used from `earlier` to this moment.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let complete = !self.threads.is_empty() && earlier.threads.keys().all(|id| self.threads.contains_key(id));
        if complete {
            let before = |id| earlier.threads.get(id).copied().unwrap_or(0);
            Duration::from_nanos(self.threads.iter().map(|(id, now)| now.saturating_sub(before(id))).sum())
        } else {
            let ticks = self.ticks.saturating_sub(earlier.ticks);
            TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
        }
    }
}

/// The process that started this one.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    parent_from_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The processes that `parent` started and that still run.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// Resident memory in bytes, exact where the kernel offers it.
pub(crate) fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let exact = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok().and_then(|text| kilobytes(&text, "Rss:"));
    let kilobytes = match exact {
        Some(kilobytes) => Some(kilobytes),
        // `status` sums per-processor counters lazily and may be off by some hundred kB.
        None => fs::read_to_string(format!("/proc/{pid}/status")).ok().and_then(|text| kilobytes(&text, "VmRSS:")),
    };
    kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| anyhow!("memory of process {pid} cannot be read"))
}

/// User and system time. The process name before them is in brackets and may hold blanks and brackets itself.
fn ticks_from_stat(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn parent_from_stat(stat: &str) -> Option<u32> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn run_time(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().next()?.parse().ok()
}

fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_a_process_name_with_blanks_and_brackets() {
        let stat = "4711 (tokio) work (er) S 1 4711 4711 0 -1 4194560 900 0 3 0 125 37 0 0 20 0 4 0 812 90 50";

        assert_eq!(ticks_from_stat(stat), Some(162));
        assert_eq!(parent_from_stat(stat), Some(1));
        assert_eq!(ticks_from_stat("4711 (cut) S 1 2"), None);
        assert_eq!(ticks_from_stat(""), None);
    }

    #[test]
    fn run_time_and_kilobytes_are_the_first_number() {
        assert_eq!(run_time("2655031 118 7\n"), Some(2_655_031));
        assert_eq!(run_time(""), None);
        let rollup = "55d0-7ffe ---p 0 00:00 0 [rollup]\nRss:                8844 kB\nPss:                 812 kB\n";
        assert_eq!(kilobytes(rollup, "Rss:"), Some(8844));
        assert_eq!(kilobytes(rollup, "Swap:"), None);
    }

    #[test]
    fn threads_are_summed_and_a_new_one_counts_from_zero() {
        let earlier = CpuSnapshot { ticks: 0, threads: HashMap::from([(1, 100), (2, 50)]) };
        let later = CpuSnapshot { ticks: 9, threads: HashMap::from([(1, 150), (2, 50), (3, 7)]) };

        assert_eq!(later.since(&earlier), Duration::from_nanos(57));
    }

    #[test]
    fn a_thread_that_ended_makes_the_process_totals_count() {
        let earlier = CpuSnapshot { ticks: 3, threads: HashMap::from([(1, 100), (2, 50)]) };
        let later = CpuSnapshot { ticks: 9, threads: HashMap::from([(1, 150)]) };

        assert_eq!(later.since(&earlier), Duration::from_millis(60));
    }

    #[test]
    fn this_process_can_be_measured() {
        let pid = std::process::id();
        let before = CpuSnapshot::take(pid).unwrap();
        let mut number = 1u64;
        // Own thread time is only brought up to date by the scheduler, so work until it shows.
        let used = loop {
            (0..1_000_000u64).for_each(|step| number = std::hint::black_box(number ^ step));
            let used = CpuSnapshot::take(pid).unwrap().since(&before);
            if used > Duration::ZERO {
                break used;
            }
        };

        assert!(parent_of(pid).is_some_and(|parent| children_of(parent).contains(&pid)));
        assert!(used < Duration::from_secs(60));
        assert!(resident_bytes(pid).unwrap() > 100_000);
    }
}
