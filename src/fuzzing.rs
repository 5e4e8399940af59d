//! The fuzz targets: everything that reads bytes which Floodmark may not have written itself.
//!
//! Each takes arbitrary bytes and panics when a promise is broken: no panic inside, no memory by a length that was read,
//! and what was read is written back as it was. The targets stand beside the decoders they try; this is their list. Only
//! in builds with the feature `fault-injection`.

use crate::event_time::{EventTime, Span};
use crate::inspect::{Key, parse_base64};
use crate::operator::{DedupSpec, EventDefinition, JoinInput, JoinOperator, JoinSpec};
use crate::{aggregate, checkpoint, codec, operator, pipeline, repository, state};

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is that of its corpus under `tests/data/fuzz`.
    pub name: &'static str,
    /// Takes arbitrary bytes.
    pub run: fn(&[u8]),
}

/// All targets, by name.
pub const TARGETS: &[Target] = &[
    #[cfg(feature = "arrow")]
    Target { name: "columns", run: pipeline::source::columnar::fuzzing::columns },
    Target { name: "csv", run: pipeline::source::fuzzing::csv },
    Target { name: "fields", run: fields },
    Target { name: "json_lines", run: pipeline::source::fuzzing::json_lines },
    Target { name: "keys", run: keys },
    Target { name: "lineage", run: checkpoint::fuzzing::lineage },
    Target { name: "manifest", run: checkpoint::fuzzing::manifest },
    Target { name: "names", run: names },
    Target { name: "numbers", run: pipeline::source::fuzzing::numbers },
    Target { name: "origin", run: checkpoint::fuzzing::origin },
    Target { name: "output_handle", run: pipeline::sink::fuzzing::handle },
    Target { name: "output_owner", run: pipeline::sink::fuzzing::owner },
    Target { name: "payloads", run: aggregate::fuzzing::payloads },
    Target { name: "pipeline_file", run: pipeline::fuzzing::pipeline_file },
    Target { name: "repository", run: stored },
    Target { name: "savepoint", run: checkpoint::fuzzing::savepoint },
    Target { name: "state_entries", run: state::fuzzing::entries },
    Target { name: "times", run: pipeline::source::fuzzing::times },
];

/// Runs the target of that name; false when there is none.
pub fn run(name: &str, bytes: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.name == name);
    target.inspect(|target| (target.run)(bytes)).is_some()
}

fn keys(bytes: &[u8]) {
    codec::fuzzing::keys(bytes);
    for components in 1..4 {
        let key = Key::from_stored(bytes, components);
        assert_eq!(Key::from_stored(&key.to_stored(), key.0.len()), key, "a key is not read back");
        assert!(!key.to_string().chars().any(char::is_control), "a key reaches the terminal");
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = parse_base64(text);
    }
}

fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    checkpoint::fuzzing::names(text);
    repository::fuzzing::names(text);
    pipeline::sink::fuzzing::names(text);
}

/// The owner record of a repository, or the record of a checkpoint in it.
fn stored(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, body)) => repository::fuzzing::owner(body),
        Some((_, record)) => repository::fuzzing::record(record),
        None => {}
    }
}

/// A stored event: the length of its key, the time it expires, its key, its payload.
fn fields(bytes: &[u8]) {
    aggregate::fuzzing::fields(bytes);
    let Some((&length, rest)) = bytes.split_first() else { return };
    let Some((end, rest)) = rest.split_first_chunk::<8>() else { return };
    let end = EventTime::from_millis(i64::from_le_bytes(*end));
    let (key, payload) = rest.split_at(usize::from(length).min(rest.len()));
    operator::fuzz_stored_event(key, payload);
    let left = JoinInput::new("l").field("n", "n", aggregate::InputType::Int, 0);
    let left = left.field("t", "t", aggregate::InputType::Text, 1);
    let join = JoinSpec::new("j", &["k"], left, JoinInput::new("r"), (-5, 10));
    let taken = JoinOperator::new(0, join.clone()).restore_row(end, key, payload);
    let dedup = EventDefinition::Dedup(DedupSpec::new(&["id"], Span::ZERO, 0));
    let _ = dedup.check_row(end, key, payload);
    let checked = EventDefinition::Join(join).check_row(end, key, payload);
    assert_eq!(taken.map(drop), checked, "what is verified and what is restored differ");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::fuzzing::seed;

    /// Target, name in the corpus, input.
    const TEXTS: &[(&str, &str, &[u8])] = &[
        #[cfg(feature = "arrow")]
        ("columns", "prose", b"Seventeen rows of a kind that nobody has written: what stands in them is what the letters of this sentence say, one after the other, until they are used up and zeros come. A time, a key and a number, some of them null; and then a decimal or two, which is where it ends."),
        #[cfg(feature = "arrow")]
        ("columns", "digits", b"2718281828459045235360287471352662497757247093699959574966967627724076630353547594571382178525166427427466391932003059921817413596629043572900334295260595630738132328627943490763233829880753195251019011573834187930702154089149934884167509244761460668082264800168477411853742345442437107539077744992069551702761838606261331384583000752044933826560297606737113200709328709127443747047230696977209310141692836819025515108657463772111252389784425056953696"),
        ("csv", "plain", b"\x00\x07ts,k,v,f,d,s,p\n1,a,2,0.5,1.25,x,\n2,\"b\"\"\n\",3,,,\"\",y\r\nbroken,\"\n4,c,5,1,1,z,1"),
        ("csv", "tabs", b"\x03\x01ts\tk\tv\tf\td\ts\tp\r\n2023-11-14T22:13:20Z\ta\t1\t\t\t\t\r\n"),
        ("csv", "semicolons", b"\x04\x0310;k;1;2;3;4;5;6\n11;k;1;2;3;4;5\n\n12;\"k\";1;1e3;-0.10;\"\";5;6\n"),
        ("csv", "filtered", b"\x08\x051|x|1|2|3|4|5\n|y|1|1|1|1|1\n"),
        ("fields", "event", b"\x14\x6f\0\0\0\0\0\0\0key\0\x80\0\0\0\0\0\0d\0\0\0\0\0\0\0\0\x01\0\x01\0\x0e\0"),
        ("fields", "id", b"\x01\x6f\0\0\0\0\0\0\0k\x01"),
        ("json_lines", "plain", b"\x00\x09{\"ts\":1,\"k\":\"a\",\"v\":2,\"f\":0.5,\"d\":\"1.25\",\"s\":\"\\u00e9\",\"p\":null}\n\n{\"ts\":2,\"k\":{}}\n{\"v\":7,\"k\":\"\\ud800\",\"ts\":3}"),
        ("json_lines", "times", b"\x01\x20\xef\xbb\xbf{\"x\":[{}],\"ts\":\"2023-11-14T22:13:20.5+01:00\",\"k\":1.50,\"v\":-3,\"d\":1e2,\"s\":true}\r\n[1]\n{\"ts\":\"9999-01-01T00:00:00Z\",\"k\":\"\",\"v\":1}\n"),
        ("json_lines", "filtered", b"\x02\x03{\"ts\":1,\"k\":\"\\\"\",\"v\":9223372036854775808,\"p\":1}\n{\"ts\":1,\"k\":\"a\",\"v\":1e1,\"p\":1}\n"),
        ("names", "checkpoint", b"chk-0000000012"),
        ("names", "attempt", b"chk-0000000012.3-0.tmp"),
        ("names", "savepoint", b"before-upgrade_2"),
        ("names", "record", b"manifests/chk-0000000012.0000000003"),
        ("names", "object", b"data/abababababababababababababababab/0000000003-0000000012-000004/000012.sst"),
        ("names", "store", b"s3://bucket/a/b"),
        ("names", "container", b"abfss://container@account/path"),
        ("names", "file", b"file:///mnt/backup"),
        ("names", "part", b"part-0000000007.jsonl"),
        ("names", "staged", b"abababab-3-12.parquet"),
        ("names", "lock", b"pid=12\nsince_ms=1700000000000\nhost=one\n"),
        ("numbers", "integer", b"\x02-9223372036854775808"),
        ("numbers", "decimal", b"\x02+0019.900"),
        ("numbers", "exponent", b"\x0312345e-3"),
        ("numbers", "float", b"\x001.7976931348623157e308"),
        ("times", "rfc3339", b"2016-12-31T23:59:60.123456789-05:30"),
        ("times", "seconds", b"-1700000000.0005"),
        ("times", "pattern", b"%d/%b/%Y:%H:%M:%S %z\n10/Oct/2000:13:55:36 -0700"),
        ("times", "local", b"%Y-%m-%d %H:%M:%S%.f\n2013-11-03 01:30:00.5"),
        ("times", "zone", b"%a, %d %B %y %I:%M %p %Q\nSun, 03 November 13 01:30 AM America/New_York"),
    ];

    #[test]
    fn real_input_keeps_the_promises_that_are_asked_of_hostile_one() {
        for (target, name, bytes) in TEXTS {
            assert!(run(target, bytes), "{target}");
            seed(target, name, bytes);
        }
        for name in ["aggregates/pipeline", "join/pipeline", "postgres/pipeline", "windows/batches"] {
            let path = format!("{}/examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            // Without the comments, which are most of an example.
            let text = std::fs::read_to_string(path).unwrap();
            let lines: String = text
                .lines()
                .filter(|line| !line.trim_start().starts_with('#') && !line.is_empty())
                .map(|line| format!("{line}\n"))
                .collect();
            assert!(run("pipeline_file", lines.as_bytes()));
            seed("pipeline_file", &name.replace('/', "-"), lines.as_bytes());
        }
    }
}
