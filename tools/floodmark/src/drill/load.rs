//! A load of the drill's own: a seeded stream, and a pipeline over it that keeps all kinds of state. For drills of a
//! machine rather than of a pipeline.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use floodmark::error::Error;
use floodmark::pipeline::generate::{Lateness, Spec, TextFormat};

use super::scratch::failed;
use crate::generate::{Progress, write_files};

const FILE: &str = r#"name = "drill"

[source]
path = "load.jsonl"
time = { field = "ts", format = "epoch_ms" }

[watermark]
delay = "5s"

[state]
directory = "state"
memory = "64MiB"

[checkpoint]
interval = "1s"

[[window]]
name = "tumbling"
key = ["key"]
type = "tumbling"
size = "10s"
allowed_lateness = "20s"
aggregates = [
  { name = "events", function = "count" },
  { name = "sum", function = "sum", field = "value", type = "int" },
  { name = "min", function = "min", field = "value", type = "int" },
  { name = "max", function = "max", field = "value", type = "int" },
  { name = "avg", function = "avg", field = "value", type = "int" },
]
output = { path = "out/tumbling" }

[[window]]
name = "sliding"
key = ["key"]
type = "sliding"
size = "1m"
slide = "20s"
aggregates = [{ name = "events", function = "count" }, { name = "median", function = "median", field = "value", type = "int" }]
output = { path = "out/sliding", format = "csv" }

[[window]]
name = "sessions"
key = ["key"]
type = "session"
gap = "2s"
aggregates = [{ name = "events", function = "count" }]
output = { path = "out/sessions" }

[late]
path = "out/late"

[dead_letter]
path = "out/rejected"
"#;

/// What the stream looks like: skewed in nothing, late in part, broken now and then.
fn spec(events: u64) -> Spec {
    Spec {
        keys: 1_000,
        rate: 2_000,
        lateness: vec![
            Lateness { share: 0.95, min_ms: 0, max_ms: 5_000 },
            Lateness { share: 0.05, min_ms: 5_000, max_ms: 60_000 },
        ],
        null_share: 0.01,
        malformed_share: 0.001,
        ..Spec::s1(events)
    }
}

/// Writes stream and pipeline file into `root`; returns the path of the latter.
///
/// # Errors
/// `Unavailable` when the disk is in the way.
pub(super) fn generate(events: u64, seed: u64, root: &Path) -> Result<PathBuf, Error> {
    let mut progress = Progress::new(events, true);
    write_files(spec(events), seed, TextFormat::Jsonl, &root.join("load.jsonl"), false, &mut progress)?;
    let path = root.join("pipeline.toml");
    File::create(&path)
        .and_then(|mut file| file.write_all(FILE.as_bytes()))
        .map_err(|error| failed("write", &path, error))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use floodmark::pipeline::config::PipelineConfig;

    use super::*;

    #[test]
    fn the_pipeline_of_the_load_is_accepted_and_nothing_in_it_follows_the_clock() {
        let config = PipelineConfig::from_str(FILE, Path::new("pipeline.toml")).expect("accepted");
        let outputs = super::super::redirect::outputs_of(&config);
        assert_eq!(outputs.len(), 5);
        assert!(outputs.iter().all(|output| output.varies.is_none()));
    }
}
