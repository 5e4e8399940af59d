//! Pulls events from the generator and writes their text. A file appears under its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use floodmark::clock::{Clock, SystemClock};
use floodmark::error::{Error, ErrorKind};
use floodmark::pipeline::generate::{Generator, Spec, TextFormat, append_event};

use crate::console;
use crate::run::grouped;

/// Stands for the partition's number in the name of an output file.
pub(crate) const PLACE: &str = "{}";
/// Text that all partitions together hold before it is written.
const BUFFER_BYTES: usize = 1 << 20;
/// Each partition's part of it is at least this much.
const BUFFER_BYTES_MIN: usize = 4 << 10;
/// Events between two looks at the clock.
const EVENTS_PER_LOOK: u64 = 1 << 16;
/// Time between two redraws of the progress line.
const REDRAW: Duration = Duration::from_millis(200);

/// The progress line of a stream being written; silent where nobody watches.
pub(crate) struct Progress {
    events: u64,
    done: u64,
    shown: bool,
    clock: Arc<dyn Clock>,
    started: Duration,
    drawn: Duration,
}

impl Progress {
    /// Progress towards `events`.
    pub(crate) fn new(events: u64, quiet: bool) -> Self {
        let clock = SystemClock::shared();
        let started = clock.monotonic();
        Self {
            events,
            done: 0,
            shown: !quiet && console::stderr_is_terminal(),
            clock,
            started,
            drawn: started,
        }
    }

    fn event(&mut self) {
        self.done += 1;
        if !self.done.is_multiple_of(EVENTS_PER_LOOK) || !self.shown {
            return;
        }
        let now = self.clock.monotonic();
        if now.saturating_sub(self.drawn) >= REDRAW {
            self.drawn = now;
            let percent = self.done * 100 / self.events.max(1);
            console::redraw(&format!(
                "{percent} %  {} events  {}/s",
                grouped(self.done),
                grouped(self.rate())
            ));
        }
    }

    fn rate(&self) -> u64 {
        (self.done as f64 / self.clock.monotonic().saturating_sub(self.started).as_secs_f64().max(0.001))
            as u64
    }

    fn finish(&self) {
        if self.shown {
            console::redraw("");
        }
    }
}

/// Writes the stream to standard output. A reader that has gone ends it without an error.
pub(super) fn write_stdout(
    spec: Spec,
    seed: u64,
    format: TextFormat,
    progress: &mut Progress,
) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    let result = write(Generator::new(spec, seed)?, format, &mut [&mut stdout], progress);
    progress.finish();
    match result {
        Err((_, error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map(|_| ()).map_err(|(_, error)| {
            Error::new(ErrorKind::Unavailable, "cannot write to standard output").with_source(error)
        }),
    }
}

/// Writes the stream to files and tells what was written.
///
/// # Errors
/// When a file exists and `force` is not set, or the disk is in the way.
pub(crate) fn write_files(
    spec: Spec,
    seed: u64,
    format: TextFormat,
    output: &Path,
    force: bool,
    progress: &mut Progress,
) -> Result<String, Error> {
    let paths: Vec<PathBuf> = (0..spec.partitions).map(|partition| named(output, partition)).collect();
    if let Some(taken) = paths.iter().find(|path| !force && path.exists()) {
        let message = format!("file exists: path={}", taken.display());
        return Err(
            Error::new(ErrorKind::Invalid, message).with_remedy("choose another name, or add --force")
        );
    }
    let generator = Generator::new(spec, seed)?;
    let partial: Vec<PathBuf> = paths.iter().map(|path| partial_name(path)).collect();
    let result = write_partial(generator, format, &partial, progress);
    progress.finish();
    if let Err(error) = result {
        for path in &partial {
            // It may not have been created; the error that is told is the one that matters.
            let _ = fs::remove_file(path);
        }
        return Err(error);
    }
    let bytes = result.unwrap_or_default();
    reveal(&partial, &paths)?;
    let files = if paths.len() == 1 { "1 file".to_owned() } else { format!("{} files", paths.len()) };
    Ok(format!(
        "{} events, {} bytes in {files} ({} events/s)",
        grouped(progress.done),
        grouped(bytes),
        grouped(progress.rate())
    ))
}

/// Gives finished files their names. A generated stream can be generated again: nothing is synced.
#[expect(clippy::disallowed_methods, reason = "generated data need not survive a power cut")]
fn reveal(partial: &[PathBuf], paths: &[PathBuf]) -> Result<(), Error> {
    for (from, to) in partial.iter().zip(paths) {
        fs::rename(from, to).map_err(|error| cannot_write(to, error))?;
    }
    Ok(())
}

fn write_partial(
    generator: Generator,
    format: TextFormat,
    paths: &[PathBuf],
    progress: &mut Progress,
) -> Result<u64, Error> {
    let created = paths.iter().map(|path| File::create(path).map_err(|error| cannot_write(path, error)));
    let mut files = created.collect::<Result<Vec<File>, Error>>()?;
    let mut targets: Vec<&mut dyn Write> = files.iter_mut().map(|file| file as &mut dyn Write).collect();
    write(generator, format, &mut targets, progress)
        .map_err(|(partition, error)| cannot_write(&paths[partition], error))
}

/// Writes every event to the target of its partition; returns the bytes written, or which target failed.
fn write(
    generator: Generator,
    format: TextFormat,
    targets: &mut [&mut dyn Write],
    progress: &mut Progress,
) -> Result<u64, (usize, io::Error)> {
    let buffer_bytes = (BUFFER_BYTES / targets.len().max(1)).max(BUFFER_BYTES_MIN);
    let key_digits = generator.key_digits();
    let mut buffers = vec![format.header().as_bytes().to_vec(); targets.len()];
    let mut written = 0;
    for event in generator {
        let partition = event.partition as usize;
        let buffer = &mut buffers[partition];
        append_event(buffer, &event, format, key_digits);
        if buffer.len() >= buffer_bytes {
            targets[partition].write_all(buffer).map_err(|error| (partition, error))?;
            written += buffer.len() as u64;
            buffer.clear();
        }
        progress.event();
    }
    for (partition, (buffer, target)) in buffers.iter().zip(targets).enumerate() {
        target.write_all(buffer).and_then(|()| target.flush()).map_err(|error| (partition, error))?;
        written += buffer.len() as u64;
    }
    Ok(written)
}

fn named(output: &Path, partition: u32) -> PathBuf {
    match output.to_str() {
        Some(name) => PathBuf::from(name.replace(PLACE, &partition.to_string())),
        None => output.to_owned(),
    }
}

fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

fn cannot_write(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot write: path={}", path.display()))
        .with_remedy("create the directory, or free space, or choose another place")
        .with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(events: u64, partitions: u32) -> Spec {
        Spec { partitions, ..Spec::s1(events) }
    }

    #[test]
    fn partitions_get_a_file_each_and_together_hold_every_event() {
        let folder = tempfile::tempdir().expect("a directory");
        let output = folder.path().join("part-{}.csv");
        let mut progress = Progress::new(1_000, true);
        write_files(spec(1_000, 3), 4, TextFormat::Csv, &output, false, &mut progress).expect("written");
        let lines = |partition| {
            let text = fs::read_to_string(named(&output, partition)).expect("a file per partition");
            assert!(text.starts_with("ts,key,value\n"));
            text.lines().count() - 1
        };
        let counts = [lines(0), lines(1), lines(2)];
        assert_eq!(counts.iter().sum::<usize>(), 1_000);
        assert!(counts.iter().all(|&count| count > 200), "{counts:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 3, "no partial file stays");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a file of the test")]
    fn a_file_that_exists_is_kept_unless_forced() {
        let folder = tempfile::tempdir().expect("a directory");
        let output = folder.path().join("events.jsonl");
        fs::write(&output, "mine").expect("written");
        let write = |force| {
            write_files(spec(5, 1), 1, TextFormat::Jsonl, &output, force, &mut Progress::new(5, true))
        };
        assert_eq!(write(false).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
        assert_eq!(fs::read_to_string(&output).expect("still there"), "mine");
        write(true).expect("written");
        assert_eq!(fs::read_to_string(&output).expect("replaced").lines().count(), 5);
    }

    #[test]
    fn a_missing_directory_is_told_with_the_path() {
        let folder = tempfile::tempdir().expect("a directory");
        let output = folder.path().join("absent").join("events.jsonl");
        let error =
            write_files(spec(5, 1), 1, TextFormat::Jsonl, &output, false, &mut Progress::new(5, true))
                .expect_err("there is no such directory");
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("absent"), "{error}");
    }
}
