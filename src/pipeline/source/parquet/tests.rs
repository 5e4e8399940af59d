use std::io::Write;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::*;
use crate::aggregate::InputType;
use crate::pipeline::config::TimeFormat;

const ROWS: i64 = 61;

fn plan() -> ParsePlan {
    ParsePlan::new("ts", TimeFormat::Column).key(&["k"]).value("v", InputType::Int)
}

/// Rows in groups of 16, one time in ten null.
fn file() -> tempfile::NamedTempFile {
    let times = (0..ROWS).map(|row| (row % 10 != 3).then_some(row * 100));
    let rows = RecordBatch::try_from_iter_with_nullable([
        (
            "k",
            Arc::new((0..ROWS).map(|row| Some(format!("key-{}", row % 7))).collect::<StringArray>()) as _,
            true,
        ),
        ("ts", Arc::new(times.collect::<TimestampMillisecondArray>()) as _, true),
        (
            "v",
            Arc::new((0..ROWS).map(|row| (row % 5 != 0).then_some(row)).collect::<Int64Array>()) as _,
            true,
        ),
    ])
    .unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(16)).build();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = ArrowWriter::try_new(file.reopen().unwrap(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    file
}

/// What the rows from number `from` on are, in blocks of so many rows at most.
fn read(rows: &mut RowFile, from: u64, rows_max: usize) -> Result<Vec<String>> {
    let (mut seen, mut at) = (Vec::new(), from);
    loop {
        let mut block = Block::default();
        block.batch.keys.resize_with(1, Default::default);
        block.batch.values.push(crate::event::ValueColumn::int());
        let taken = rows.read(at, rows_max, &mut block)?;
        let batch = &block.batch;
        let mut found: Vec<(u64, String)> = (0..batch.len())
            .map(|event| {
                let (key, value) =
                    (String::from_utf8_lossy(batch.keys[0].get(event)), batch.values[0].get(event));
                (batch.records[event], format!("{} {key} {value:?}", batch.times[event]))
            })
            .chain(block.rejected.iter().map(|rejected| (rejected.record, rejected.reason.to_string())))
            .collect();
        found.sort();
        seen.extend(found.into_iter().map(|(record, what)| format!("{record} {what}")));
        at += taken as u64;
        if taken == 0 {
            return Ok(seen);
        }
    }
}

#[test]
fn reading_on_at_any_row_in_blocks_of_any_size_gives_the_same_rows() {
    let file = file();
    let straight = read(&mut RowFile::open(file.path(), &plan()).unwrap(), 0, usize::MAX).unwrap();
    assert_eq!(straight.len(), ROWS as usize);
    assert_eq!(straight[3], "4 null_timestamp");
    assert_eq!(straight[20], "21 2000 key-6 None");
    for rows_max in [1, 3, 100] {
        let mut same = RowFile::open(file.path(), &plan()).unwrap();
        for from in 0..=ROWS as u64 {
            let mut opened = RowFile::open(file.path(), &plan()).unwrap();
            assert_eq!(read(&mut opened, from, rows_max).unwrap(), straight[from as usize..]);
            assert_eq!(read(&mut same, from, rows_max).unwrap(), straight[from as usize..]);
        }
    }
}

#[test]
fn the_bytes_that_are_passed_go_up_with_the_rows_and_end_with_the_file() {
    let file = file();
    let rows = RowFile::open(file.path(), &plan()).unwrap();
    let bytes: Vec<u64> = (0..=rows.rows()).map(|row| rows.bytes_at(row)).collect();
    assert!(bytes.windows(2).all(|pair| pair[0] < pair[1]), "{bytes:?}");
    assert_eq!((bytes[0], bytes[ROWS as usize]), (0, file.path().metadata().unwrap().len()));
}

#[test]
fn a_file_with_a_flipped_byte_is_read_or_refused_with_a_remedy() {
    let file = file();
    let whole = std::fs::read(file.path()).unwrap();
    let (mut refused, mut damaged) = (0, 0);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        file.reopen().unwrap().write_all(&bytes).unwrap();
        let error = match RowFile::open(file.path(), &plan()) {
            Err(error) => {
                refused += 1;
                error
            }
            Ok(mut rows) => match read(&mut rows, 0, 10) {
                Ok(_) => continue,
                Err(error) => {
                    damaged += 1;
                    error
                }
            },
        };
        assert!(error.remedy().is_some(), "{error}");
    }
    assert!(refused > 10 && damaged > 10, "refused={refused} damaged={damaged}");
}
