use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use super::*;

fn contents() -> BackupContents {
    let columns = vec!["id".to_owned(), "name".to_owned()];
    BackupContents {
        store: StoreKind::Postgres,
        migrations: vec![Applied { version: 1, name: "V001__state".into(), checksum: "c".into() }],
        tables: vec![BackupTable { name: "tenants".into(), rows: 2, columns }],
        sequences: Vec::new(),
    }
}

fn written(folder: &Path) -> (PathBuf, BackupManifest) {
    let path = folder.join("backup.tar");
    let manifest = BackupManifest::new(contents(), "2026-01-01T00:00:00Z".into(), false);
    let mut writer = BackupWriter::create(&path, Replace::Never).unwrap();
    let mut entry = writer.entry(&table_file("tenants")).unwrap();
    entry.write(b"1\tone\n").unwrap();
    entry.write(b"2\ttwo\n").unwrap();
    entry.finish().unwrap();
    assert!(!path.exists(), "it has its name only when it is complete");
    let bytes = writer.finish(&manifest).unwrap();
    assert_eq!(bytes, fs::metadata(&path).unwrap().len());
    (path, manifest)
}

fn verify(path: &Path) -> Result<(), BackupError> {
    BackupReader::open(path)?.verify(&mut |_| {})
}

#[test]
fn a_backup_reads_back_what_was_written_and_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, manifest) = written(folder.path());
    let reader = BackupReader::open(&path).unwrap();
    assert_eq!((reader.manifest(), reader.manifest().rows()), (&manifest, 2));
    let mut read = 0;
    reader.verify(&mut |bytes| read += bytes).unwrap();
    assert!(read > 14 && read <= reader.bytes(), "{read}");
    let target = folder.path().join("tenants");
    reader.extract("tables/tenants.copy", &target, &mut |_| {}).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "1\tone\n2\ttwo\n");
    for file in [&path, &target] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(matches!(BackupWriter::create(&path, Replace::Never), Err(BackupError::Exists { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing temporary is left");
}

#[test]
fn a_backup_that_is_given_up_leaves_nothing_and_two_at_once_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup.tar");
    fs::write(with_suffix(&path, ".partial"), "left by a process that was killed").unwrap();
    let writer = BackupWriter::create(&path, Replace::Never).unwrap();
    assert!(matches!(BackupWriter::create(&path, Replace::Always), Err(BackupError::InUse { .. })));
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn every_changed_byte_of_the_contents_and_every_cut_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = written(folder.path());
    let good = fs::read(&path).unwrap();
    verify(&path).unwrap();
    let text = String::from_utf8_lossy(&good).into_owned();
    for part in ["1\tone", "\"rows\": 2", "2026-01-01", "  tables/tenants.copy"] {
        let mut bad = good.clone();
        bad[text.find(part).unwrap()] ^= 1;
        fs::write(&path, bad).unwrap();
        assert!(verify(&path).is_err(), "{part}");
    }
    let end = text.rfind("manifest.json\n").unwrap();
    for kept in (0..end).step_by(256).chain([end]) {
        fs::write(&path, &good[..kept]).unwrap();
        assert!(verify(&path).is_err(), "the first {kept} bytes");
    }
    fs::write(&path, "something else").unwrap();
    assert!(matches!(verify(&path), Err(BackupError::NotABackup { .. })));
}
