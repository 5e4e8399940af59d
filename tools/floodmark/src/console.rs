//! The two streams of the terminal: results on standard output, everything said about them on standard error.

use std::io::{self, IsTerminal, Write};

use floodmark::error::{Error, ErrorKind};
use floodmark::open_files;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

/// Starts the log on standard error: plain lines, `FLOODMARK_LOG` or warnings and the program's own information.
pub(crate) fn start_log(quiet: bool) {
    let default = if quiet { "warn" } else { "floodmark=info,warn" };
    let filter = EnvFilter::try_from_env("FLOODMARK_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    // A second start, in tests, keeps the first.
    let _ = builder.with_ansi(stderr_is_terminal()).try_init();
}

/// True when people watch standard error.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Writes to standard output; a reader that has gone is not an error.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot write to standard output").with_source(error)
        }),
    }
}

/// Writes a report to standard output: as one line of JSON, or for people.
pub(crate) fn print_report<T: Serialize>(
    json: bool,
    report: &T,
    for_people: impl FnOnce(&T) -> String,
) -> Result<(), Error> {
    if !json {
        return print(&for_people(report));
    }
    let text = serde_json::to_string(report)
        .map_err(|error| Error::new(ErrorKind::Bug, "cannot write the report").with_source(error))?;
    print(&format!("{text}\n"))
}

/// Writes a line to standard error. With nobody there to read it there is nobody to tell, either.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Redraws the progress line on a terminal.
pub(crate) fn redraw(line: &str) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "\r\x1b[2K{line}").and_then(|()| stderr.flush());
}

/// Prints an error with its causes and its remedy.
pub(crate) fn print_error(error: &Error) {
    say(&format!("error: {error}"));
    let mut shown = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let text = cause.to_string();
        if !shown.contains(&text) {
            say(&format!("  cause: {text}"));
        }
        shown = text;
        source = cause.source();
    }
    // Whoever met the limit of open files cannot know it.
    let limit = open_files::remedy(error);
    if let Some(remedy) = limit.as_deref().or_else(|| error.remedy()) {
        say(&format!("  remedy: {remedy}"));
    }
}
