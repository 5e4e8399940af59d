//! The protocol as a whole: cuts at every step, damage, restarts of every kind, and rivals in one directory.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::durable::script;
use super::*;
use crate::aggregate::Value;
use crate::error::ErrorKind;
use crate::error::Result;
use crate::event_time::{EventTime, Watermark, Window};
use crate::operator::{EventBatch, LateEvent, PaneKind, PartitionId, ResultBlock, ResultRow};

pub(super) struct Durable(pub(super) u64);

impl PublishPermit for Durable {
    fn epoch(&self) -> u64 {
        self.0
    }
}

/// Rows whose only value is a number.
pub(super) struct Numbers<I>(I, [Value; 1]);

impl<I: Iterator<Item = u32>> ResultBlock for Numbers<I> {
    fn window(&self) -> Window {
        Window { start: EventTime::from_millis(0), end: EventTime::from_millis(60_000) }
    }

    fn watermark(&self) -> Watermark {
        Watermark::At(EventTime::from_millis(60_000))
    }

    fn next_row(&mut self) -> Option<ResultRow<'_>> {
        self.1 = [Value::Int(self.0.next()?.into())];
        Some(ResultRow { key: b"k", pane_index: 0, kind: PaneKind::OnTime, values: &self.1 })
    }
}

pub(super) fn numbers(range: std::ops::Range<u32>) -> Numbers<std::ops::Range<u32>> {
    Numbers(range, [Value::Null])
}

pub(super) fn spec(directory: &Path, format: Format) -> ResultSpec {
    ResultSpec {
        name: "hourly".to_owned(),
        directory: directory.to_owned(),
        format,
        keys: vec![KeyField { name: "key".to_owned(), kind: KeyKind::Text }],
        aggregates: vec!["n".to_owned()],
        types: vec![ColumnType::Int],
        times: TimeFormat::EpochMillis,
        metadata: false,
        row_kinds: false,
    }
}

pub(super) const fn run(generation: u64) -> SinkContext {
    SinkContext { lineage: [7; 16], generation }
}

fn restored(staged: &[StagedOutput], last_epoch: u64) -> Restored<'_> {
    Restored { staged, last_epoch, newest_epoch: last_epoch, ahead: AheadPolicy::Refuse }
}

fn open(directory: &Path, generation: u64, restored: Restored<'_>) -> Result<Opened<ResultSink>> {
    ResultSink::open(spec(directory, Format::Jsonl), run(generation), restored)
}

/// What `cat part-*` prints.
pub(super) fn concatenated(directory: &Path) -> String {
    let mut names: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("part-"));
    names.sort();
    names.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// The file that a handle names.
fn staged_name(staged: &StagedOutput) -> String {
    super::staged::StagedFile::of(staged, "hourly").unwrap().staged_name
}

fn line(n: u32) -> String {
    format!("{{\"key\":\"k\",\"window_start\":0,\"window_end\":60000,\"n\":{n}}}\n")
}

fn lines(range: std::ops::Range<u32>) -> String {
    range.map(line).collect()
}

fn staging_files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory.join(".staging")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "OWNER" && name != "LOCK");
    names.sort();
    names
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    let error = result.unwrap_err();
    assert!(error.remedy().is_some_and(|remedy| !remedy.is_empty()), "{error:?}");
    error.kind()
}

/// One epoch published, the next one staged.
fn two_epochs(directory: &Path) -> (StagedOutput, StagedOutput) {
    let Opened { mut sink, mut publisher, .. } = open(directory, 1, Restored::NOTHING).unwrap();
    sink.write(&mut numbers(0..3)).unwrap();
    let first = sink.stage(1).unwrap().unwrap();
    publisher.publish(&first, &Durable(1)).unwrap();
    sink.write(&mut numbers(3..5)).unwrap();
    let second = sink.stage(2).unwrap().unwrap();
    (first, second)
}

#[test]
fn rows_are_invisible_until_published_and_an_empty_epoch_has_no_part() {
    let root = TempDir::new().unwrap();
    let directory = root.path().join("deep/out");
    let Opened { mut sink, mut publisher, report } = open(&directory, 1, Restored::NOTHING).unwrap();
    assert_eq!(report, RecoverReport::default());
    assert_eq!(sink.stage(1).unwrap(), None);
    sink.write(&mut numbers(0..2)).unwrap();
    let staged = sink.stage(2).unwrap().unwrap();
    sink.write(&mut numbers(2..3)).unwrap();
    assert_eq!(concatenated(&directory), "");
    assert_eq!((staged.sink.as_str(), staged.rows), ("hourly", 2));
    assert_eq!(staged.bytes, lines(0..2).len() as u64);
    publisher.publish(&staged, &Durable(2)).unwrap();
    publisher.publish(&staged, &Durable(2)).unwrap();
    assert_eq!(concatenated(&directory), lines(0..2));
    assert!(directory.join("part-0000000002.jsonl").exists());
    assert_eq!(staging_files(&directory), Vec::<String>::new());
    assert!(sink.stage(2).is_err(), "an epoch is staged once");
}

#[test]
fn every_step_is_synced_before_the_next_relies_on_it() {
    let root = TempDir::new().unwrap();
    let Opened { mut sink, mut publisher, .. } = open(root.path(), 1, Restored::NOTHING).unwrap();
    script::taken();
    sink.write(&mut numbers(0..1)).unwrap();
    let staged = sink.stage(1).unwrap().unwrap();
    let steps = script::taken();
    assert_eq!(
        steps,
        [
            "create 07070707-1-open.jsonl",
            "write 07070707-1-open.jsonl",
            "sync 07070707-1-open.jsonl",
            "rename to 07070707-1-1.jsonl",
            "sync dir .staging",
        ]
    );
    publisher.publish(&staged, &Durable(1)).unwrap();
    let steps = script::taken();
    let name = root.path().file_name().unwrap().to_string_lossy();
    assert_eq!(
        steps,
        [
            "rename to part-0000000001.jsonl",
            &format!("sync dir {name}"),
            "remove OWNER.tmp",
            "create OWNER.tmp",
            "write OWNER.tmp",
            "sync OWNER.tmp",
            "rename to OWNER",
            "sync dir .staging",
        ]
    );
}

/// What a checkpoint keeps: how far the input was read, and what was staged.
#[derive(Clone, Default)]
struct Checkpoint {
    epoch: u64,
    next: u32,
    staged: Vec<StagedOutput>,
}

/// Runs epochs of `size` rows from the checkpoint up to `end`, and leaves the newest durable checkpoint behind.
fn run_from(
    checkpoint: &mut Checkpoint,
    directory: &Path,
    format: Format,
    generation: u64,
    size: u32,
    end: u32,
) -> Result<()> {
    let from = restored(&checkpoint.staged, checkpoint.epoch);
    let Opened { mut sink, mut publisher, .. } =
        ResultSink::open(spec(directory, format), run(generation), from)?;
    while checkpoint.next < end {
        let next = end.min(checkpoint.next + size);
        sink.write(&mut numbers(checkpoint.next..next))?;
        let epoch = checkpoint.epoch + 1;
        let staged = sink.stage(epoch)?.into_iter().collect();
        *checkpoint = Checkpoint { epoch, next, staged };
        for staged in &checkpoint.staged {
            publisher.publish(staged, &Durable(epoch))?;
        }
    }
    Ok(())
}

#[test]
fn a_run_cut_at_any_step_ends_with_the_output_of_a_straight_run() {
    for format in [Format::Jsonl, Format::Csv] {
        let straight = TempDir::new().unwrap();
        script::taken();
        run_from(&mut Checkpoint::default(), straight.path(), format, 1, 4, 10).unwrap();
        let steps = script::taken().len();
        assert!(steps > 35, "{steps}");
        let expected = concatenated(straight.path());
        for first_cut in 0..steps {
            for second_cut in [3, 9, 14] {
                let root = TempDir::new().unwrap();
                let mut checkpoint = Checkpoint::default();
                script::cut_after(Some(first_cut));
                assert!(run_from(&mut checkpoint, root.path(), format, 1, 4, 10).is_err());
                script::cut_after(Some(second_cut));
                let _ = run_from(&mut checkpoint, root.path(), format, 2, 3, 10);
                script::cut_after(None);
                run_from(&mut checkpoint, root.path(), format, 3, 5, 10).unwrap();
                assert_eq!(concatenated(root.path()), expected, "cuts at {first_cut} and {second_cut}");
                assert_eq!(staging_files(root.path()), Vec::<String>::new());
            }
        }
    }
}

#[test]
fn a_manifest_that_was_never_durable_leaves_nothing_but_a_swept_file() {
    let root = TempDir::new().unwrap();
    let (first, second) = two_epochs(root.path());
    let opened = open(root.path(), 2, restored(&[first], 1)).unwrap();
    assert_eq!(opened.report.swept, [staged_name(&second)]);
    assert_eq!(opened.report.published, Vec::<String>::new());
    assert_eq!(concatenated(root.path()), lines(0..3));
}

#[test]
fn a_lost_publish_is_made_up_for_once() {
    let root = TempDir::new().unwrap();
    let (_, second) = two_epochs(root.path());
    let staged = [second];
    let opened = open(root.path(), 2, restored(&staged, 2)).unwrap();
    assert_eq!(opened.report.published, ["part-0000000002.jsonl"]);
    drop(opened);
    let opened = open(root.path(), 3, restored(&staged, 2)).unwrap();
    assert_eq!(opened.report, RecoverReport { newest_epoch: 2, ..RecoverReport::default() });
    assert_eq!(concatenated(root.path()), lines(0..5));
}

#[test]
fn a_handle_carried_over_a_failed_checkpoint_is_published_with_the_next() {
    let root = TempDir::new().unwrap();
    let Opened { mut sink, mut publisher, .. } = open(root.path(), 1, Restored::NOTHING).unwrap();
    sink.write(&mut numbers(0..1)).unwrap();
    let failed = sink.stage(1).unwrap().unwrap();
    sink.write(&mut numbers(1..2)).unwrap();
    let next = sink.stage(2).unwrap().unwrap();
    assert_eq!(kind(publisher.publish(&failed, &Durable(0))), ErrorKind::Bug);
    drop((sink, publisher));
    open(root.path(), 2, restored(&[next, failed], 2)).unwrap();
    assert_eq!(concatenated(root.path()), lines(0..2));
}

#[test]
fn damaged_staged_output_is_never_published() {
    for damage in [b"{".as_slice(), b"", lines(7..9).as_bytes()] {
        let root = TempDir::new().unwrap();
        let (_, second) = two_epochs(root.path());
        fs::File::create(root.path().join(".staging").join(staged_name(&second)))
            .and_then(|mut file| std::io::Write::write_all(&mut file, damage))
            .unwrap();
        assert_eq!(kind(open(root.path(), 2, restored(&[second], 2))), ErrorKind::Damaged);
        assert_eq!(concatenated(root.path()), lines(0..3));
    }
}

#[test]
fn missing_staged_output_is_reported_unless_its_part_was_published_and_taken_away() {
    let root = TempDir::new().unwrap();
    let (first, second) = two_epochs(root.path());
    fs::remove_file(root.path().join(".staging").join(staged_name(&second))).unwrap();
    assert_eq!(kind(open(root.path(), 2, restored(&[second], 2))), ErrorKind::Damaged);
    fs::remove_file(root.path().join("part-0000000001.jsonl")).unwrap();
    open(root.path(), 3, restored(&[first], 1)).unwrap();
}

#[test]
fn another_part_under_the_name_is_a_conflict_and_stays_as_it_is() {
    let root = TempDir::new().unwrap();
    let Opened { mut sink, mut publisher, .. } = open(root.path(), 1, Restored::NOTHING).unwrap();
    sink.write(&mut numbers(0..1)).unwrap();
    let staged = sink.stage(1).unwrap().unwrap();
    fs::copy(root.path().join(".staging/OWNER"), root.path().join("part-0000000001.jsonl")).unwrap();
    assert_eq!(kind(publisher.publish(&staged, &Durable(1))), ErrorKind::Incompatible);
    assert_eq!(staging_files(root.path()), [staged_name(&staged)]);
}

#[test]
fn output_ahead_of_the_restored_checkpoint_is_refused_unless_set_aside() {
    for taken_away in [false, true] {
        let root = TempDir::new().unwrap();
        let mut checkpoint = Checkpoint::default();
        run_from(&mut checkpoint, root.path(), Format::Jsonl, 1, 1, 3).unwrap();
        if taken_away {
            fs::remove_file(root.path().join("part-0000000003.jsonl")).unwrap();
        }
        assert_eq!(kind(open(root.path(), 2, restored(&[], 1))), ErrorKind::Incompatible);
        assert_eq!(kind(open(root.path(), 2, Restored::NOTHING)), ErrorKind::Incompatible);
        let ahead = Restored { ahead: AheadPolicy::SetAside, ..restored(&[], 1) };
        let opened = open(root.path(), 2, ahead).unwrap();
        let mut moved = vec!["part-0000000002.jsonl", "part-0000000003.jsonl"];
        moved.truncate(if taken_away { 1 } else { 2 });
        assert_eq!(opened.report.set_aside, moved);
        drop(opened);
        // The checkpoints whose parts have gone must not be taken up as if nothing had happened.
        for gone in [2, 3] {
            let again = Restored { ahead: AheadPolicy::SetAside, ..restored(&[], gone) };
            assert_eq!(kind(open(root.path(), 2, again)), ErrorKind::Incompatible);
        }
        assert_eq!(concatenated(root.path()), lines(0..1));
        assert_eq!(
            concatenated(&root.path().join(".set-aside-07070707-2")),
            lines(1..if taken_away { 2 } else { 3 })
        );
        let mut checkpoint = Checkpoint { epoch: 1, next: 1, staged: Vec::new() };
        run_from(&mut checkpoint, root.path(), Format::Jsonl, 3, 2, 3).unwrap();
        assert_eq!(concatenated(root.path()), lines(0..3));
    }
}

#[test]
fn parts_of_another_state_are_refused_unless_set_aside() {
    let root = TempDir::new().unwrap();
    two_epochs(root.path());
    let other = SinkContext { lineage: [8; 16], generation: 1 };
    let start = |ahead| {
        let from = Restored { last_epoch: 5, ahead, ..Restored::NOTHING };
        ResultSink::open(spec(root.path(), Format::Jsonl), other, from)
    };
    assert_eq!(kind(start(AheadPolicy::Refuse)), ErrorKind::Incompatible);
    let opened = start(AheadPolicy::SetAside).unwrap();
    assert_eq!(opened.report.set_aside, ["part-0000000001.jsonl"]);
    assert_eq!(opened.report.foreign, ["07070707-1-2.jsonl"]);
    assert_eq!(opened.report.swept, Vec::<String>::new());
}

#[test]
fn a_directory_of_another_state_is_refused_also_when_readers_took_all_parts_away() {
    let root = TempDir::new().unwrap();
    two_epochs(root.path());
    let other = SinkContext { lineage: [8; 16], generation: 1 };
    let start = |ahead| {
        ResultSink::open(spec(root.path(), Format::Jsonl), other, Restored { ahead, ..Restored::NOTHING })
    };
    fs::remove_file(root.path().join("part-0000000001.jsonl")).unwrap();
    assert_eq!(kind(start(AheadPolicy::Refuse)), ErrorKind::Incompatible);
    assert_eq!(start(AheadPolicy::SetAside).unwrap().report.set_aside, Vec::<String>::new());
    // It is the other's now.
    start(AheadPolicy::Refuse).unwrap();
    // Where nothing was ever published there is nothing to lose.
    let fresh = TempDir::new().unwrap();
    open(fresh.path(), 1, Restored::NOTHING).unwrap();
    ResultSink::open(spec(fresh.path(), Format::Jsonl), other, Restored::NOTHING).unwrap();
}

#[test]
fn one_process_at_a_time_and_no_older_run_after_a_newer_one() {
    let root = TempDir::new().unwrap();
    let opened = open(root.path(), 2, Restored::NOTHING).unwrap();
    assert_eq!(kind(open(root.path(), 3, Restored::NOTHING)), ErrorKind::Locked);
    drop(opened);
    assert_eq!(kind(open(root.path(), 1, Restored::NOTHING)), ErrorKind::Locked);
    open(root.path(), 2, Restored::NOTHING).unwrap();
}

#[test]
fn the_csv_header_is_a_part_of_its_own_and_new_columns_are_refused() {
    let root = TempDir::new().unwrap();
    let mut checkpoint = Checkpoint::default();
    run_from(&mut checkpoint, root.path(), Format::Csv, 1, 1, 2).unwrap();
    assert_eq!(concatenated(root.path()), "key,window_start,window_end,n\nk,0,60000,0\nk,0,60000,1\n");
    let mut renamed = spec(root.path(), Format::Csv);
    renamed.aggregates = vec!["m".to_owned()];
    let from = restored(&checkpoint.staged, checkpoint.epoch);
    assert_eq!(kind(ResultSink::open(renamed, run(2), from)), ErrorKind::Incompatible);
    let other_format = spec(root.path(), Format::Jsonl);
    assert_eq!(kind(ResultSink::open(other_format, run(2), from)), ErrorKind::Incompatible);
}

#[test]
fn a_failed_write_poisons_the_sink_and_a_restart_goes_on() {
    let root = TempDir::new().unwrap();
    let Opened { mut sink, publisher, .. } = open(root.path(), 1, Restored::NOTHING).unwrap();
    sink.write(&mut numbers(0..1)).unwrap();
    script::cut_after(Some(2));
    let error = sink.stage(1).unwrap_err();
    script::cut_after(None);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("path="), "{error}");
    assert_eq!(kind(sink.write(&mut numbers(1..2))), ErrorKind::Poisoned);
    assert_eq!(kind(sink.stage(2)), ErrorKind::Poisoned);
    drop((sink, publisher));
    let opened = open(root.path(), 2, Restored::NOTHING).unwrap();
    assert_eq!(opened.report.swept, ["07070707-1-open.jsonl"]);
}

#[test]
fn a_path_that_cannot_be_a_directory_says_so() {
    let root = TempDir::new().unwrap();
    let file = root.path().join("out");
    fs::File::create(&file).unwrap();
    let error = open(&file, 1, Restored::NOTHING).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&*file.to_string_lossy()), "{error}");
}

#[test]
fn a_damaged_owner_file_is_named() {
    let root = TempDir::new().unwrap();
    two_epochs(root.path());
    fs::File::create(root.path().join(".staging/OWNER")).unwrap();
    let error = open(root.path(), 2, restored(&[], 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("OWNER"), "{error}");
}

#[test]
fn a_late_event_carries_what_is_needed_to_judge_it() {
    let root = TempDir::new().unwrap();
    let spec =
        RecordSpec { name: "late".to_owned(), directory: root.path().to_owned(), text: RecordText::Json };
    let Opened { mut sink, mut publisher, .. } = LateSink::open(spec, run(1), Restored::NOTHING).unwrap();
    let text = br#"{"t":5, "k":"a"}{"t":}"#.to_vec();
    let batch = EventBatch {
        partition: PartitionId(0),
        times: vec![5, 6],
        records: vec![11, 12],
        spans: vec![0..16, 16..22],
        text,
        ..EventBatch::default()
    };
    let window = Window { start: EventTime::from_millis(0), end: EventTime::from_millis(1_000) };
    let watermark = Watermark::At(EventTime::from_millis(1_500));
    for (index, offset) in [(0, Some(100)), (1, None)] {
        let event = LateEvent { batch: &batch, index, window, watermark, late_by_ms: 500 };
        sink.write("hourly", "a.jsonl", offset, &event).unwrap();
    }
    publisher.publish(&sink.stage(1).unwrap().unwrap(), &Durable(1)).unwrap();
    let rest = "\"window_start\":\"1970-01-01T00:00:00Z\",\"window_end\":\"1970-01-01T00:00:01Z\",\
                \"watermark\":\"1970-01-01T00:00:01.500Z\",\"late_by_ms\":500";
    let expected = format!(
        "{{\"operator\":\"hourly\",\"source\":\"a.jsonl\",\"record_number\":11,\"byte_offset\":100,\
         \"event_time\":\"1970-01-01T00:00:00.005Z\",{rest},\"record\":{{\"t\":5, \"k\":\"a\"}}}}\n\
         {{\"operator\":\"hourly\",\"source\":\"a.jsonl\",\"record_number\":12,\"byte_offset\":null,\
         \"event_time\":\"1970-01-01T00:00:00.006Z\",{rest},\"record\":\"{{\\\"t\\\":}}\"}}\n"
    );
    assert_eq!(concatenated(root.path()), expected);
}

#[test]
fn a_rejected_record_is_kept_with_its_reason_whatever_its_bytes() {
    let root = TempDir::new().unwrap();
    let spec =
        RecordSpec { name: "dead".to_owned(), directory: root.path().to_owned(), text: RecordText::Json };
    let Opened { mut sink, mut publisher, .. } =
        DeadLetterSink::open(spec, run(1), Restored::NOTHING).unwrap();
    let deep = "[".repeat(500) + &"]".repeat(500);
    let texts: [&[u8]; 6] =
        [b"{\"ts\":null}\r\n", b"{\"a\":1e999}", b"\xff", b"{\"a\":\n1}", b"\"\\ud800\"", deep.as_bytes()];
    for text in texts {
        let letter = DeadLetter {
            source: "a\"b",
            record: 3,
            byte_offset: Some(40),
            reason: "null_timestamp",
            field: Some("ts"),
            detail: "it is null",
            text,
        };
        sink.write(&letter).unwrap();
        sink.write(&DeadLetter { field: None, ..letter }).unwrap();
    }
    publisher.publish(&sink.stage(1).unwrap().unwrap(), &Durable(1)).unwrap();
    let out = concatenated(root.path());
    assert!(out.starts_with(
        "{\"source\":\"a\\\"b\",\"record_number\":3,\"byte_offset\":40,\"reason\":\"null_timestamp\",\"field\":\"ts\",\
         \"detail\":\"it is null\",\"record\":{\"ts\":null}}\n"
    ));
    assert_eq!(out.lines().count(), 12);
    let records: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["record"].clone())
        .collect();
    assert_eq!(records[2], "{\"a\":1e999}");
    assert_eq!(records[4]["base64"], "/w==");
    assert_eq!(records[6], "{\"a\":\n1}");
    assert_eq!(records[8], "\"\\ud800\"");
    assert_eq!(records[10], *deep);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn parts_in_order_are_the_straight_output_for_any_cut_into_epochs(
        epochs in prop::collection::vec(0_u32..9_000, 1..6),
    ) {
        let root = TempDir::new().unwrap();
        let Opened { mut sink, mut publisher, .. } = open(root.path(), 1, Restored::NOTHING).unwrap();
        let mut next = 0;
        for (index, rows) in epochs.into_iter().enumerate() {
            sink.write(&mut numbers(next..next + rows)).unwrap();
            next += rows;
            let epoch = index as u64 + 1;
            if let Some(staged) = sink.stage(epoch).unwrap() {
                prop_assert_eq!(staged.rows, u64::from(rows));
                publisher.publish(&staged, &Durable(epoch)).unwrap();
            }
        }
        prop_assert!(concatenated(root.path()) == lines(0..next));
    }
}
