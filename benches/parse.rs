//! How fast the source turns text into columns: `cargo bench --bench parse [-- FILE.jsonl[.zst]]`.
//!
//! Without a file, lines of the S1 shape; with one, flights. Next to it the same lines through `serde_json`.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a bench reads the clock and prints")]

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use floodmark::clock::SystemClock;
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::source::{FileSource, ParsePlan};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const LINES: u64 = 3_000_000;
const ROUNDS: usize = 5;

#[derive(serde::Deserialize)]
struct Simple<'a> {
    ts: i64,
    #[serde(borrow)]
    key: Cow<'a, str>,
    value: Option<i64>,
}

#[derive(serde::Deserialize)]
struct Flight<'a> {
    sched_dep: Cow<'a, str>,
    #[serde(borrow)]
    origin: Cow<'a, str>,
    dep_delay: Option<i64>,
}

fn main() -> Outcome {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let directory = std::env::temp_dir().join(format!("floodmark-parse-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let outcome = match given {
        Some(path) => run(&directory, &PathBuf::from(path), ["sched_dep", "rfc3339", "origin", "dep_delay"]),
        None => {
            let path = directory.join("s1.jsonl");
            write_lines(&path).and_then(|()| run(&directory, &path, ["ts", "epoch_ms", "key", "value"]))
        }
    };
    std::fs::remove_dir_all(&directory)?;
    outcome
}

fn write_lines(path: &Path) -> Outcome {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for line in 0..LINES {
        let (time, key) = (1_700_000_000_000 + line / 8, line.wrapping_mul(2_654_435_761) % 10_000);
        writeln!(file, "{{\"ts\":{time},\"key\":\"k{key}\",\"value\":{}}}", line % 1_000)?;
    }
    file.flush()?;
    Ok(())
}

fn run(directory: &Path, input: &Path, [time, format, key, value]: [&str; 4]) -> Outcome {
    let input = std::path::absolute(input)?;
    let text = format!(
        "name = \"bench\"\n[source]\npath = {input:?}\ntime = {{ field = \"{time}\", format = \"{format}\" }}\n\
         [watermark]\ndelay = \"0s\"\n[state]\ndirectory = \"state\"\n[[window]]\nname = \"w\"\nkey = [\"{key}\"]\n\
         type = \"tumbling\"\nsize = \"1m\"\nmode = \"append\"\noutput = {{ path = \"out\" }}\n\
         aggregates = [{{ name = \"sum\", function = \"sum\", field = \"{value}\", type = \"int\" }}]\n"
    );
    let config = PipelineConfig::from_str(&text, &directory.join("bench.toml"))?;
    for _ in 0..ROUNDS {
        let mut source =
            FileSource::open(&config.sources, ParsePlan::of(&config).0, &[], SystemClock::shared())?;
        let (started, mut events, mut bytes, mut spare) = (Instant::now(), 0, 0, None);
        while let Some(block) = source.next_block(spare.take())? {
            events += block.batch.len();
            bytes += block.batch.text.len() as u64;
            spare = Some(block);
        }
        report("floodmark", started, events, bytes);
    }
    for _ in 0..ROUNDS {
        by_serde(&input, time == "ts")?;
    }
    Ok(())
}

fn by_serde(input: &Path, simple: bool) -> Outcome {
    let file = std::fs::File::open(input)?;
    let reader: Box<dyn std::io::Read> = match input.extension().is_some_and(|extension| extension == "zst") {
        true => Box::new(zstd::Decoder::new(file)?),
        false => Box::new(file),
    };
    let (mut reader, mut line) = (BufReader::with_capacity(256 << 10, reader), Vec::new());
    let (started, mut events, mut bytes, mut sum) = (Instant::now(), 0, 0, 0);
    while reader.read_until(b'\n', &mut line)? > 0 {
        bytes += line.len() as u64;
        events += 1;
        if simple {
            let record: Simple<'_> = serde_json::from_slice(&line)?;
            sum += record.ts + record.key.len() as i64 + record.value.unwrap_or(0);
        } else {
            let record: Flight<'_> = serde_json::from_slice(&line)?;
            let time: jiff::Timestamp = record.sched_dep.parse()?;
            sum += time.as_millisecond() + record.origin.len() as i64 + record.dep_delay.unwrap_or(0);
        }
        line.clear();
    }
    std::hint::black_box(sum);
    report("serde_json structs", started, events, bytes);
    Ok(())
}

fn report(name: &str, started: Instant, events: usize, bytes: u64) {
    let seconds = started.elapsed().as_secs_f64();
    let (rate, megabytes) = (events as f64 / seconds / 1e6, bytes as f64 / seconds / 1e6);
    println!("{name:20} {rate:6.2} M events/s {megabytes:7.0} MB/s  events={events}");
}
