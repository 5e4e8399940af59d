//! The pipeline of the user with its state and its outputs in a directory of the drill. The one place that knows which
//! settings name places that a run writes to. Inputs stay where they are; they are only read.

use std::path::{Path, PathBuf};

use floodmark::error::{Error, ErrorKind};
use floodmark::event_time::Span;
use floodmark::pipeline::config::{
    CheckpointConfig, JoinOutput, OutputConfig, OutputFormat, OutputTarget, PipelineConfig, Repeat,
    StateConfig, TimeDomain, Trigger, WindowConfig,
};

/// Checkpoints kept in the drill at least, so that there is one before the newest to go back to.
const RETAIN_MIN: u32 = 2;

/// An output of the pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Output {
    /// Name, which is that of its folder in the drill.
    pub(super) name: String,
    /// Where the pipeline file has it.
    pub(super) original: PathBuf,
    /// Why it differs from run to run, when it does.
    pub(super) varies: Option<&'static str>,
}

/// The state directory of a run in `root`.
pub(super) fn state(root: &Path) -> PathBuf {
    root.join("state")
}

/// The folder of all outputs of a run in `root`.
pub(super) fn outputs(root: &Path) -> PathBuf {
    root.join("out")
}

/// Every output of the pipeline, as the file has them.
pub(super) fn outputs_of(config: &PipelineConfig) -> Vec<Output> {
    let windows = config.windows.iter().map(|window| Output {
        name: format!("results.{}", window.name),
        original: window.output.path.clone(),
        varies: follows_the_clock(window),
    });
    let plain = |name: String, path: &PathBuf| Output { name, original: path.clone(), varies: None };
    let joins = config.joins.iter().map(|join| plain(format!("joined.{}", join.name), &join.output.path));
    let late = config.late.iter().map(|path| plain("late".to_owned(), path));
    let dead = config.dead_letter.iter().map(|path| plain("dead_letter".to_owned(), path));
    windows.chain(joins).chain(late).chain(dead).collect()
}

/// Sends everything that a run writes into `root`, and takes checkpoints at least every `interval`.
///
/// # Errors
/// `Invalid` for an interval that is no length of time.
pub(super) fn redirect(config: &mut PipelineConfig, root: &Path, interval_ms: i64) -> Result<(), Error> {
    let interval = Span::from_millis(interval_ms).filter(|span| span.as_millis() > 0).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("this is not an interval: milliseconds={interval_ms}"))
    })?;
    let place = |name: String| outputs(root).join(name);
    // Every setting is named here: one that comes to name a place of its own must not be overlooked.
    let PipelineConfig {
        name: _,
        sources: _,
        watermark: _,
        state: StateConfig { directory, memory_bytes: _, workers: _ },
        checkpoint: CheckpointConfig { interval: every, input_bytes: _, retain, repository, verify_every: _ },
        windows,
        joins,
        late,
        dead_letter,
        status,
        watch: _,
    } = config;
    // The pipeline itself may be running, at that very address.
    *status = None;
    *directory = state(root);
    *every = interval.min(*every);
    // A copy has nothing to say to the mirror of the original.
    *repository = None;
    *retain = RETAIN_MIN.max(*retain);
    for window in windows {
        let OutputConfig { path, target, format, time_format: _, metadata: _ } = &mut window.output;
        turn(target, format);
        *path = place(format!("results.{}", window.name));
    }
    for join in joins {
        let JoinOutput { path, target, format, time_format: _ } = &mut join.output;
        turn(target, format);
        *path = place(format!("joined.{}", join.name));
    }
    *late = late.as_ref().map(|_| place("late".to_owned()));
    *dead_letter = dead_letter.as_ref().map(|_| place("dead_letter".to_owned()));
    Ok(())
}

/// Rows go to files of text, which can be compared, wherever they go otherwise.
fn turn(target: &mut OutputTarget, format: &mut OutputFormat) {
    *target = OutputTarget::Files;
    if *format == OutputFormat::Parquet {
        *format = OutputFormat::JsonLines;
    }
}

/// The outputs that are files of text in the drill only. What a checkpoint of the pipeline has staged for them is in
/// another form.
pub(super) fn turned(config: &PipelineConfig) -> Vec<String> {
    let is_turned = |target: &OutputTarget, format: OutputFormat| {
        let (mut to, mut form) = (target.clone(), format);
        turn(&mut to, &mut form);
        (&to, form) != (target, format)
    };
    let windows =
        config.windows.iter().filter(|window| is_turned(&window.output.target, window.output.format));
    let joins = config.joins.iter().filter(|join| is_turned(&join.output.target, join.output.format));
    let windows = windows.map(|window| format!("results.{}", window.name));
    windows.chain(joins.map(|join| format!("joined.{}", join.name))).collect()
}

/// Why rows of a window depend on when they were made.
fn follows_the_clock(window: &WindowConfig) -> Option<&'static str> {
    let by_clock = |repeat: Repeat| matches!(repeat, Repeat::Interval(_));
    match window.trigger {
        _ if window.time == TimeDomain::Processing => Some("its windows are those of the wall clock"),
        Trigger::Interval(_) => Some("it fires by the wall clock"),
        Trigger::Composite { early, late } if by_clock(early) || by_clock(late) => {
            Some("it fires by the wall clock")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
name = "p"
source = { path = "in.jsonl", time = { field = "t", format = "epoch_ms" } }
watermark = { delay = "1s" }
state = { directory = "mine/state" }
checkpoint = { interval = "10s", retain = 1, repository = "mine/mirror" }
late = { path = "mine/late" }
dead_letter = { path = "mine/rejected" }
[[window]]
name = "a"
type = "tumbling"
size = "1m"
aggregates = [{ name = "n", function = "count" }]
output = { path = "mine/a" }
[[window]]
name = "b"
type = "tumbling"
size = "1m"
time = "processing"
aggregates = [{ name = "n", function = "count" }]
output = { path = "mine/b" }
"#;

    #[test]
    fn nothing_that_is_written_stays_where_the_file_has_it_and_inputs_do() {
        let mut config = PipelineConfig::from_str(FILE, Path::new("pipeline.toml")).expect("a right file");
        let before = config.clone();
        let outputs = outputs_of(&config);
        let names: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
        assert_eq!(names, ["results.a", "results.b", "late", "dead_letter"]);
        assert!(outputs[0].varies.is_none() && outputs[1].varies.is_some());
        redirect(&mut config, Path::new("/drill"), 500).expect("redirected");
        assert!(!format!("{config:?}").contains("mine"), "{config:?}");
        assert_eq!(config.sources, before.sources);
        assert_eq!((config.checkpoint.interval.as_millis(), config.checkpoint.retain), (500, 2));
        assert!(turned(&before).is_empty());
        redirect(&mut config, Path::new("/drill"), 900).expect("redirected");
        assert_eq!(config.checkpoint.interval.as_millis(), 500, "never rarer than asked for");
        assert!(redirect(&mut config, Path::new("/drill"), 0).is_err());
    }

    #[test]
    fn tables_parquet_and_standard_output_become_files_of_text() {
        for output in [
            r#"{ kind = "postgres", url_env = "U", table = "t", write = "append" }"#,
            r#"{ path = "mine/a", format = "parquet" }"#,
            r#"{ path = "-" }"#,
        ] {
            let file = FILE.replace(r#"{ path = "mine/a" }"#, output);
            let mut config =
                PipelineConfig::from_str(&file, Path::new("pipeline.toml")).expect("a right file");
            assert_eq!(turned(&config), ["results.a"], "{output}");
            redirect(&mut config, Path::new("/drill"), 500).expect("redirected");
            assert!(turned(&config).is_empty());
            let OutputConfig { path, target, format, .. } = &config.windows[0].output;
            assert_eq!(path, Path::new("/drill/out/results.a"));
            assert_eq!((target, *format), (&OutputTarget::Files, OutputFormat::JsonLines));
        }
    }
}
