//! The name of the machine or container, and its memory limit.
//!
//! Linux has it in files. On other systems they do not exist, and the most is used, as on a large machine.

use std::{fs, path::Path};

/// The fraction of the memory that requests may use, and its maximum.
const SHARE: u64 = 4;
const MOST: u64 = 1 << 30;
/// The minimum, if little memory is available or its size is unknown: one request with images fits.
const MIN_BYTES: u64 = 64 << 20;

/// The default memory budget of requests, in bytes.
pub(crate) fn request_bytes() -> u64 {
    let known = [memory_of_machine(&read("/proc/meminfo")), memory_of_container(Path::new("/sys/fs/cgroup"))];
    share(known.into_iter().flatten().min())
}

/// The name of this machine, if the operating system reports it.
pub(crate) fn host_name() -> Option<String> {
    let name = read("/proc/sys/kernel/hostname");
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn share(memory: Option<u64>) -> u64 {
    memory.map_or(MOST, |memory| memory / SHARE).clamp(MIN_BYTES, MOST)
}

/// `MemTotal:       24682528 kB`
fn memory_of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The limit of this process's control group and its parents.
fn memory_of_container(root: &Path) -> Option<u64> {
    let groups = read("/proc/self/cgroup");
    groups.lines().filter_map(|line| limit_of_group(root, line)).min()
}

/// `0::/system.slice/amalgam.service`, or `4:memory:/docker/1234` in version 1.
fn limit_of_group(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => (root.to_owned(), "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
        _ => return None,
    };
    // Inside a container the group may not exist under its full name; its parents count, too.
    let group = root.join(path.trim_start_matches('/'));
    let around = group.ancestors().take_while(|folder| folder.starts_with(&root));
    around.filter_map(|folder| read(folder.join(file)).trim().parse().ok()).min()
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    // right E2
    #[test]
    fn requests_get_a_quarter_of_the_memory_and_at_most_a_gibibyte() {
        assert_eq!(share(Some(2 << 30)), 512 << 20);
        assert_eq!(share(Some(24 << 30)), 1 << 30);
        assert_eq!(share(None), 1 << 30);
        assert_eq!(memory_of_machine("MemFree: 1 kB\nMemTotal:        2048 kB\n"), Some(2 << 20));
        assert!((MIN_BYTES..=MOST).contains(&request_bytes()));
    }

    // right E2
    #[test]
    fn the_smallest_limit_of_the_groups_around_the_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        fs::create_dir_all(root.path().join("memory/docker")).unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("a/memory.max"), "1048576\n").unwrap();
        fs::write(root.path().join("memory/docker/memory.limit_in_bytes"), "4096\n").unwrap();
        assert_eq!(limit_of_group(root.path(), "0::/a/b"), Some(1 << 20));
        assert_eq!(limit_of_group(root.path(), "7:cpu,memory:/docker/x"), Some(4096));
        assert_eq!(limit_of_group(root.path(), "3:cpu:/a"), None);
    }
}
