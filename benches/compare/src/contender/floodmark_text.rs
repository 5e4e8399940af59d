//! A whole Floodmark pipeline: JSON lines in, checked and parsed; JSON lines out, each published once.
//!
//! Opening the state is within the time, as in `floodmark run`. The results are read back from the files, after it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use floodmark::clock::SystemClock;
use floodmark::pipeline::config::PipelineConfig;
use floodmark::pipeline::{RunOptions, Silent, StopFlag, run as run_pipeline};
use serde::Deserialize;

use super::{DURABLE_EVERY, MEMORY_BYTES, Run, now};
use crate::Outcome;
use crate::results::{Pane, Results};
use crate::stream::{DELAY_MS, Stream, WINDOW_MS};

pub(super) fn run(stream: &Stream, dir: &Path) -> Outcome<Run> {
    let text = stream.write_text(dir)?;
    let config = PipelineConfig::from_str(&pipeline_file(&text)?, &dir.join("pipeline.toml"))?;
    let started = now();
    let summary = run_pipeline(
        &config,
        RunOptions::default(),
        &StopFlag::default(),
        SystemClock::shared(),
        &mut Silent,
    )?;
    let took = started.elapsed();
    Ok(Run { took, kept: summary.checkpoints.count, results: read_back(&dir.join("out"))? })
}

fn pipeline_file(text: &Path) -> Outcome<String> {
    let text = text.to_str().filter(|path| !path.contains(['\'', '\n']));
    let text =
        text.ok_or("the directory has a name that a pipeline file cannot hold; give another with --dir")?;
    Ok(format!(
        "name = 'compare'
[source]
path = '{text}'
time = {{ field = 'ts', format = 'epoch_ms' }}
[watermark]
delay = '{DELAY_MS}ms'
[state]
directory = 'state'
memory = '{}MiB'
[checkpoint]
interval = '{}ms'
[[window]]
name = 'minute'
key = ['key']
type = 'tumbling'
size = '{WINDOW_MS}ms'
aggregates = [
  {{ name = 'count', function = 'count' }},
  {{ name = 'sum', function = 'sum', field = 'value', type = 'int' }},
  {{ name = 'min', function = 'min', field = 'value', type = 'int' }},
  {{ name = 'max', function = 'max', field = 'value', type = 'int' }},
]
output = {{ path = 'out', format = 'jsonl', time_format = 'epoch_ms' }}
[late]
path = 'late'
",
        MEMORY_BYTES >> 20,
        DURABLE_EVERY.as_millis(),
    ))
}

#[derive(Deserialize)]
struct Row<'a> {
    window_start: i64,
    key: &'a str,
    count: u64,
    sum: i64,
    min: i64,
    max: i64,
}

fn read_back(dir: &Path) -> Outcome<Results> {
    let mut results = Results::default();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with("part-") {
            continue;
        }
        let mut lines = BufReader::with_capacity(1 << 20, fs::File::open(&path)?);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            let Row { window_start, key, count, sum, min, max } = serde_json::from_str(&line)?;
            results.take(window_start, key.as_bytes(), Pane { count, sum, min, max });
            line.clear();
        }
    }
    Ok(results)
}
