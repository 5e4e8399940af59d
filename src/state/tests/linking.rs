//! Linked checkpoints: complete, untouched by readers, and refused when torn.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rocksdb::{DB, Options};

use super::*;
use crate::state::key::SENTINEL;

fn linked_bench() -> (Bench, PathBuf) {
    let bench = Bench::new();
    bench.put(WritePath::Batch, FIRST, &[(10, b"a", 1), (20, b"b", 2)]);
    bench.put(WritePath::Files, SECOND, &[(10, b"c", 3)]);
    let target = bench.path("checkpoint");
    bench.db.link_checkpoint(&target, 41).unwrap();
    (bench, target)
}

#[test]
fn a_working_copy_of_a_checkpoint_holds_its_epoch_and_panes_and_nothing_later() {
    let (bench, target) = linked_bench();
    bench.put(WritePath::Batch, FIRST, &[(10, b"later", 9)]);
    copy_dir(&target, &bench.path("restored"));
    let db = StateDb::open(&bench.path("restored"), &specs(), &StateMemory::new(8 << 20)).unwrap();
    assert_eq!(db.epoch().unwrap(), Some(41));
    assert_eq!(rows(db.scan(FIRST, ..).unwrap()), [(10, b"a".to_vec(), 1), (20, b"b".to_vec(), 2)]);
    assert_eq!(rows(db.scan(SECOND, ..).unwrap()), [(10, b"c".to_vec(), 3)]);
    db.write_sorted(FIRST, [(pane(10, b"a"), Write::Merge(&5_u64.to_le_bytes()))].into_iter(), 1).unwrap();
    let linked = db.link_checkpoint(&bench.path("second"), 42).unwrap();
    assert!(linked.hard_linked);
    let state = ReadOnlyState::open(&bench.path("second"), &specs()).unwrap();
    assert_eq!(state.epoch(), 42);
    assert_eq!(rows(state.scan(FIRST, ..=at(10)).unwrap()), [(10, b"a".to_vec(), 6)]);
}

/// The options that a database wrote down last, as lines by section of a family.
fn options_of_families(dir: &Path) -> Vec<(String, Vec<String>)> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let newest = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("OPTIONS-"));
    let text = std::fs::read_to_string(newest.max().unwrap()).unwrap();
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().map(str::trim) {
        match (line.starts_with('['), sections.last_mut()) {
            (true, _) => sections.push((line.to_owned(), Vec::new())),
            (false, Some((_, lines))) => lines.push(line.to_owned()),
            (false, None) => {}
        }
    }
    sections.retain(|(name, _)| name.starts_with("[CFOptions"));
    sections
}

#[test]
fn checks_between_memory_and_file_are_on_in_every_family_of_a_database_that_writes() {
    let (bench, target) = linked_bench();
    copy_dir(&target, &bench.path("restored"));
    let _db = StateDb::open(&bench.path("restored"), &specs(), &StateMemory::new(8 << 20)).unwrap();
    for dir in ["work", "restored"] {
        let families = options_of_families(&bench.path(dir));
        assert!(families.len() >= 3, "{families:?}");
        for (family, lines) in families {
            for wanted in [
                "paranoid_file_checks=true",
                "memtable_protection_bytes_per_key=8",
                "block_protection_bytes_per_key=8",
            ] {
                assert!(lines.iter().any(|line| line == wanted), "{dir} {family}: no {wanted}");
            }
        }
    }
}

#[test]
fn a_linked_checkpoint_lists_its_files_with_what_they_cover() {
    let (bench, target) = linked_bench();
    let linked = bench.db.link_checkpoint(&bench.path("next"), 42).unwrap();
    let on_disk: BTreeMap<_, _> = std::fs::read_dir(bench.path("next"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect();
    let listed: BTreeMap<_, _> = linked.files.iter().map(|file| (file.name.clone(), file.bytes)).collect();
    assert_eq!(listed, on_disk);
    for file in &linked.files {
        assert_eq!(file.range.is_some(), file.name.ends_with(".sst"), "{}", file.name);
    }
    let seconds = linked.files.iter().filter_map(|file| file.range.as_ref());
    let second = seconds
        .filter(|range| range.column_family == "second.windows")
        .find(|range| range.end_min.is_some())
        .unwrap();
    assert_eq!(second.end_min, Some(at(10)));
    // The files of the earlier checkpoint are still the same files.
    assert!(ReadOnlyState::open(&target, &specs()).is_ok());
}

#[test]
fn the_target_must_not_exist() {
    let (bench, target) = linked_bench();
    assert!(bench.db.link_checkpoint(&target, 42).is_err());
    assert_eq!(ReadOnlyState::open(&target, &specs()).unwrap().epoch(), 41);
}

#[test]
fn a_left_over_of_a_killed_checkpoint_is_no_obstacle() {
    let (bench, _) = linked_bench();
    let left_over = bench.path("again.tmp");
    std::fs::create_dir(&left_over).unwrap();
    std::fs::copy(bench.path("checkpoint").join("CURRENT"), left_over.join("CURRENT")).unwrap();
    bench.db.link_checkpoint(&bench.path("again"), 42).unwrap();
    assert!(!left_over.exists());
}

#[test]
fn families_of_different_epochs_are_refused() {
    let (bench, target) = linked_bench();
    let torn = bench.path("torn");
    copy_dir(&target, &torn);
    {
        let names = family::column_families(&specs());
        let mut options = Options::default();
        options.set_merge_operator_associative("floodmark.pane.1", |_, _, _| None);
        let names = names.iter().map(|name| (name.as_str(), options.clone()));
        let db = DB::open_cf_with_opts(&Options::default(), &torn, names).unwrap();
        db.put_cf(db.cf_handle("second.windows").unwrap(), SENTINEL, 40_u64.to_le_bytes()).unwrap();
    }
    let opened = StateDb::open(&torn, &specs(), &StateMemory::new(8 << 20));
    assert!(matches!(opened, Err(StateError::Torn { .. })), "{opened:?}");
    let opened = ReadOnlyState::open(&torn, &specs());
    let Err(StateError::Torn { epochs, .. }) = opened else { panic!("{opened:?}") };
    assert!(epochs.contains(&("second.windows".to_owned(), Some(40))));
    assert!(epochs.contains(&("first.windows".to_owned(), Some(41))));
}

#[test]
fn a_database_that_was_never_linked_is_no_checkpoint() {
    let bench = Bench::new();
    let dir = bench.path("work");
    drop(bench.db);
    assert!(matches!(ReadOnlyState::open(&dir, &specs()), Err(StateError::Torn { .. })));
}

#[test]
fn reading_leaves_a_checkpoint_as_it_is() {
    let (_bench, target) = linked_bench();
    let photograph = || -> BTreeMap<String, (Vec<u8>, SystemTime)> {
        let files = std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap());
        files
            .map(|file| {
                let content = std::fs::read(file.path()).unwrap();
                let modified = file.metadata().unwrap().modified().unwrap();
                (file.file_name().into_string().unwrap(), (content, modified))
            })
            .collect()
    };
    let before = photograph();
    {
        let state = ReadOnlyState::open(&target, &specs()).unwrap();
        state.set_horizon(FIRST, horizon(10)).unwrap();
        state.set_horizon(SECOND, horizon(10)).unwrap();
        assert_eq!(ReadOnlyState::list_families(&target).unwrap(), ["first", "second"]);
        assert_eq!(state.get(FIRST, pane(10, b"a")).unwrap(), None);
        assert_eq!(rows(state.scan(FIRST, ..).unwrap()), [(20, b"b".to_vec(), 2)]);
        let verified = state.verify().unwrap();
        let first = verified.iter().find(|family| family.column_family == "first.windows").unwrap();
        assert_eq!((first.panes, first.expired, first.damaged, first.unknown), (1, 1, 0, 0));
    }
    assert!(photograph() == before);
}

#[test]
fn families_must_be_exactly_those_present() {
    let (bench, target) = linked_bench();
    let memory = StateMemory::new(8 << 20);
    let mut fewer = specs();
    fewer.pop();
    let mut more = specs();
    more.push(FamilySpec { name: "third".to_owned(), ..specs().remove(0) });
    for (families, absent, unexpected) in
        [(&fewer, [].as_slice(), ["second.windows"].as_slice()), (&more, &["third.windows"], &[])]
    {
        let refusals =
            [ReadOnlyState::open(&target, families).err(), StateDb::open(&target, families, &memory).err()];
        for refusal in refusals {
            let Some(StateError::Families { absent: a, unexpected: u, .. }) = refusal else {
                panic!("{refusal:?}")
            };
            assert_eq!(a, absent);
            assert_eq!(u, unexpected);
        }
    }
    let missing = StateDb::open(&bench.path("nowhere"), &specs(), &memory);
    assert!(matches!(missing, Err(StateError::Missing { .. })));
    let occupied = StateDb::create(&target, &specs(), &memory);
    assert!(matches!(occupied, Err(StateError::NotEmpty { .. })));
}

#[test]
fn names_that_could_not_be_families_are_refused() {
    let home = TempDir::new().unwrap();
    for bad in ["", "a.b", "a/b", "ä", "first"] {
        let mut families = specs();
        families[1].name = bad.to_owned();
        let refused = StateDb::create(&home.path().join("x"), &families, &StateMemory::new(8 << 20));
        assert!(matches!(refused, Err(StateError::FamilyName { .. })), "{bad:?}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "damages a file on purpose")]
fn a_flipped_byte_in_a_table_is_noticed_by_a_full_read_or_the_open() {
    let (bench, target) = linked_bench();
    let tables = std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().path());
    let table = tables.filter(|path| path.extension().is_some_and(|ext| ext == "sst")).max().unwrap();
    let name = table.file_name().unwrap().to_owned();
    let content = std::fs::read(&table).unwrap();
    let damaged_dir = bench.path("damaged");
    copy_dir(&target, &damaged_dir);
    // The first bytes of a table are its first data block.
    for offset in 0..8 {
        let mut damaged = content.clone();
        damaged[offset] ^= 0x10;
        std::fs::write(damaged_dir.join(&name), damaged).unwrap();
        let found = ReadOnlyState::open(&damaged_dir, &specs()).and_then(|state| state.verify());
        assert!(found.is_err(), "byte {offset} of {name:?}");
    }
}

#[test]
fn another_file_system_is_noticed_because_files_are_copied() {
    use std::os::unix::fs::MetadataExt;
    let (bench, _) = linked_bench();
    let elsewhere = Path::new("/dev/shm");
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
    if device(elsewhere).is_none() || device(elsewhere) == device(bench.home.path()) {
        return;
    }
    let target = tempfile::tempdir_in(elsewhere).unwrap();
    let linked = bench.db.link_checkpoint(&target.path().join("copy"), 42).unwrap();
    assert!(!linked.hard_linked);
}
