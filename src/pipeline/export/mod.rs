//! Panes of a checkpoint as files that other tools read: Parquet, CSV or JSON lines, one file for each window.
//!
//! Pane after pane, in bounded memory, from a published checkpoint. A file gets its name when it is complete.
//! It knows rows and files; which panes there are is for [`crate::inspect`] to say.

mod rows;
mod text;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::rows::PaneRows;
use self::text::{CsvRows, JsonRows};
use super::sink::Format;
#[cfg(feature = "parquet")]
use super::sink::PlainParquet;
use crate::checkpoint::{DiskFs, DurableFs, create_dir_durably};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{self, ListedPane, Origin, PaneFilter, StreamedOperator, Watcher};

/// What an export wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// The checkpoint.
    pub checkpoint: Origin,
    /// The files.
    pub files: Vec<ExportedFile>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExportedFile {
    /// The window it is of.
    pub window: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its rows: panes, or slices of windows that share them.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
}

/// Writes the panes that `filter` asks for, of the checkpoint of epoch `at` or the newest one under `path`, into a file
/// `WINDOW.FORMAT` each in `into`, which is made when it is not there.
///
/// # Errors
/// [`ErrorKind::Invalid`] when there is no such checkpoint, window or key, a file is there already, or a field has the
/// name of a column of its own; [`ErrorKind::Unavailable`] when the disk is in the way or the checkpoint is retired
/// meanwhile; [`ErrorKind::Damaged`] when files cannot be read back, [`ErrorKind::Incompatible`] when another version
/// wrote them.
pub fn export(
    path: &Path,
    at: Option<u64>,
    filter: &PaneFilter,
    format: Format,
    into: &Path,
    now_ms: i64,
    watcher: Watcher<'_>,
) -> Result<Exported> {
    create_dir_durably(&DiskFs, into).map_err(failed("make the directory", into))?;
    let mut writing = Writing { into, format, current: None, files: Vec::new() };
    let checkpoint = inspect::stream(path, at, filter, now_ms, watcher, &mut writing)?;
    writing.finish()?;
    Ok(Exported { checkpoint, files: writing.files })
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |error| {
        let message = format!("cannot {step}: path={}", path.display());
        Error::new(ErrorKind::Unavailable, message)
            .with_remedy("free space, mend the permissions, or choose another directory")
            .with_source(error)
    }
}

/// Files under way.
struct Writing<'a> {
    into: &'a Path,
    format: Format,
    current: Option<PaneFile>,
    files: Vec<ExportedFile>,
}

impl inspect::PaneVisitor for Writing<'_> {
    fn operator(&mut self, operator: &StreamedOperator<'_>) -> Result<()> {
        self.finish()?;
        self.current = Some(PaneFile::create(self.into, self.format, operator)?);
        Ok(())
    }

    fn pane(&mut self, pane: ListedPane) -> Result<()> {
        match &mut self.current {
            Some(file) => file.write(&pane),
            None => Err(Error::new(ErrorKind::Bug, "a pane came before its window")),
        }
    }
}

impl Writing<'_> {
    fn finish(&mut self) -> Result<()> {
        self.files.extend(self.current.take().map(PaneFile::finish).transpose()?);
        Ok(())
    }
}

/// A file that has another name until it is complete.
struct PaneFile {
    window: String,
    path: PathBuf,
    partial: PathBuf,
    rows: PaneRows,
    written: u64,
    body: Body,
}

enum Body {
    Json(JsonRows, BufWriter<File>),
    Csv(CsvRows, BufWriter<File>),
    #[cfg(feature = "parquet")]
    Parquet(Box<PlainParquet>, BufWriter<File>),
}

impl PaneFile {
    fn create(into: &Path, format: Format, operator: &StreamedOperator<'_>) -> Result<Self> {
        let name = format!("{}.{}", operator.spec.name, format.extension());
        let (path, partial) = (into.join(&name), into.join(format!("{name}.partial")));
        if path.exists() {
            let message = format!("there is such a file already: path={}", path.display());
            return Err(Error::new(ErrorKind::Invalid, message)
                .with_remedy("move it away, or name another directory with --into"));
        }
        let rows = PaneRows::of(operator)?;
        // What a cut export left is of no use.
        let mut file = BufWriter::new(File::create(&partial).map_err(failed("make a file", &partial))?);
        let body = match format {
            Format::Jsonl => Body::Json(JsonRows::new(rows.columns()), file),
            Format::Csv => {
                let csv = CsvRows::new();
                csv.header(rows.columns(), &mut file).map_err(failed("write a file", &partial))?;
                Body::Csv(csv, file)
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => Body::Parquet(Box::new(PlainParquet::new(rows.columns())?), file),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => {
                let message = "this build has no Parquet (cargo feature `parquet`)";
                return Err(Error::new(ErrorKind::Invalid, message).with_remedy("export csv or jsonl"));
            }
        };
        Ok(Self { window: operator.spec.name.clone(), path, partial, rows, written: 0, body })
    }

    fn write(&mut self, pane: &ListedPane) -> Result<()> {
        self.written += 1;
        let wrote = match &mut self.body {
            Body::Json(rows, file) => {
                self.rows.walk(pane, rows)?;
                rows.end_row(file)
            }
            Body::Csv(rows, file) => {
                self.rows.walk(pane, rows)?;
                rows.end_row(file)
            }
            #[cfg(feature = "parquet")]
            Body::Parquet(rows, file) => {
                self.rows.walk(pane, &mut rows.next_row())?;
                let bytes = rows.full_groups()?;
                file.write_all(&bytes)
            }
        };
        wrote.map_err(failed("write a file", &self.partial))
    }

    /// Completes the file and gives it its name.
    fn finish(self) -> Result<ExportedFile> {
        let Self { window, path, partial, written, body, .. } = self;
        let mut file = match body {
            Body::Json(_, file) | Body::Csv(_, file) => file,
            #[cfg(feature = "parquet")]
            Body::Parquet(rows, mut file) => {
                file.write_all(&rows.finish()?).map_err(failed("write a file", &partial))?;
                file
            }
        };
        file.flush().map_err(failed("write a file", &partial))?;
        drop(file);
        let named = DiskFs
            .sync_file(&partial)
            .and_then(|()| DiskFs.rename(&partial, &path))
            .and_then(|()| DiskFs.sync_dir(path.parent().unwrap_or(Path::new("."))));
        named.map_err(failed("complete a file", &path))?;
        let bytes = std::fs::metadata(&path).map_err(failed("look at a file", &path))?.len();
        Ok(ExportedFile { window, path, rows: written, bytes })
    }
}
