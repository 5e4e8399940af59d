//! Proving a checkpoint: every file against its checksum, then every row of the database read back and decoded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::checkpoint::{self, CheckpointSummary, Manifest, Problem, VerifyReport};
use crate::codec::key_components;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::inspect::choice::{CHOICES_MAX, choose, retired, summaries};
use crate::inspect::shape::{EventShape, OpenState, Shape};
use crate::state::FamilyId;

/// Damaged panes named for each operator; of the others only the number is given.
const PANES_NAMED_MAX: u64 = 20;
/// Which checkpoints to verify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The newest.
    #[default]
    Newest,
    /// The one of this epoch.
    At(u64),
    /// All that are there.
    All,
}

/// What verification of one checkpoint found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifiedCheckpoint {
    /// Its directory.
    pub path: PathBuf,
    /// Its epoch, by the directory's name or by the manifest.
    pub epoch: Option<u64>,
    /// True when there is no problem.
    pub sound: bool,
    /// Files that are as the manifest says.
    pub files_verified: u64,
    /// Bytes of these files.
    pub bytes_verified: u64,
    /// Rows that were read back; none while files are damaged, since the database is not opened then.
    pub operators: Vec<OperatorRows>,
    /// What is wrong.
    pub problems: Vec<Found>,
    /// Remarks that are no problems.
    pub notes: Vec<String>,
}

/// The rows of one operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorRows {
    /// Its name.
    pub name: String,
    /// Live panes, all read and decoded.
    pub panes: u64,
    /// Events in them.
    pub events: u64,
    /// Panes that could not be decoded.
    pub damaged: u64,
    /// Panes expired under the horizon that are still on disk.
    pub expired: u64,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The file it is about, relative to the checkpoint; absent for what is wrong inside of the database.
    pub file: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub advice: String,
}

impl Found {
    /// Something wrong inside of the database.
    fn inside(problem: String) -> Self {
        let advice = "the files are as they were written, so that the damage is older than they are: restore another \
                      checkpoint with --at, and report it";
        Self { file: None, problem, advice: advice.to_owned() }
    }
}

/// Verifies checkpoints under `path`, oldest first. Damage is in the reports and no error.
///
/// # Errors
/// [`crate::error::ErrorKind::Invalid`] when there is no such checkpoint, [`crate::error::ErrorKind::Unavailable`]
/// when the directory cannot be read, or checkpoints are retired faster than they can be read.
pub fn verify(path: &Path, which: Which) -> Result<Vec<VerifiedCheckpoint>> {
    let at = match which {
        Which::All => return verify_all(path),
        Which::At(epoch) => Some(epoch),
        Which::Newest => None,
    };
    for _ in 0..CHOICES_MAX {
        let summary = choose(path, at)?;
        let verified = verify_one(&summary);
        if verified.sound || summary.is_there() {
            return Ok(vec![verified]);
        }
    }
    Err(retired(path))
}

fn verify_all(path: &Path) -> Result<Vec<VerifiedCheckpoint>> {
    let summaries = summaries(path)?;
    // Those that retention took away meanwhile are not there to be sound or damaged.
    let verified: Vec<_> = summaries
        .iter()
        .map(|summary| (verify_one(summary), summary))
        .filter(|(verified, summary)| verified.sound || summary.is_there())
        .map(|(verified, _)| verified)
        .collect();
    if verified.is_empty() {
        // Says in the same words as for one that there is none.
        choose(path, None)?;
        return Err(retired(path));
    }
    Ok(verified)
}

fn verify_one(summary: &CheckpointSummary) -> VerifiedCheckpoint {
    let report = checkpoint::verify(&summary.path);
    let mut verified = VerifiedCheckpoint {
        path: summary.path.clone(),
        epoch: report.manifest.as_ref().map(|manifest| manifest.epoch).or(summary.epoch),
        sound: false,
        files_verified: report.files_verified,
        bytes_verified: report.bytes_verified,
        operators: Vec::new(),
        problems: report.problems.iter().map(found).collect(),
        notes: report.notes.clone(),
    };
    match trusted(&report) {
        Some(manifest) => {
            if let Err(error) = read_back(summary, manifest, &mut verified) {
                verified.problems.push(Found::inside(with_causes(&error)));
            }
        }
        None => verified.notes.push("the database was not opened, its files are not sound".to_owned()),
    }
    verified.sound = verified.problems.is_empty();
    verified
}

/// The manifest, when all files are as it says.
fn trusted(report: &VerifyReport) -> Option<&Arc<Manifest>> {
    report.manifest.as_ref().filter(|_| report.is_sound())
}

fn found(problem: &Problem) -> Found {
    let file = match problem {
        Problem::Manifest { .. } | Problem::Newer { .. } => Some("MANIFEST.fm"),
        Problem::Missing { name }
        | Problem::Size { name, .. }
        | Problem::Checksum { name, .. }
        | Problem::Extra { name }
        | Problem::Irregular { name }
        | Problem::Unreadable { name, .. } => Some(name.as_str()),
        Problem::Savepoint { .. } => Some("SAVEPOINT.fm"),
        Problem::WrongName { .. } | Problem::OtherLineage { .. } | Problem::More { .. } => None,
    };
    Found { file: file.map(str::to_owned), problem: problem.to_string(), advice: advice(problem).to_owned() }
}

/// What to do about a problem of files.
fn advice(problem: &Problem) -> &'static str {
    const BACK: &str = "bring the file back from the repository (`floodmark repository fetch`), a savepoint or a copy; until \
                        then restore another checkpoint with --at, one that does not share the file";
    match problem {
        Problem::Manifest { .. } => {
            "bring MANIFEST.fm back from the repository or a copy: without it nothing in the directory can be believed"
        }
        Problem::Newer { .. } => {
            "use a version of floodmark that is at least as new as the one that wrote it"
        }
        Problem::Missing { .. } | Problem::Size { .. } | Problem::Checksum { .. } => BACK,
        Problem::Unreadable { .. } => {
            "check permissions and the disk (its kernel log) first; then bring the file back from the repository or a copy"
        }
        Problem::Extra { .. } => "move it away: nothing else belongs into the directory of a checkpoint",
        Problem::Irregular { .. } => {
            "put a regular file or directory in its place, from the repository or a copy"
        }
        Problem::WrongName { .. } => "give the directory the name that its manifest says",
        Problem::OtherLineage { .. } => {
            "move it away: it is of another state directory; `floodmark restore` makes one of it"
        }
        Problem::Savepoint { .. } => {
            "bring SAVEPOINT.fm back from a copy; the checkpoint itself may be sound without it"
        }
        Problem::More { .. } => "mend those that are named, and verify again",
    }
}

fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Opens the database and reads every row of it.
fn read_back(
    summary: &CheckpointSummary,
    manifest: &Manifest,
    verified: &mut VerifiedCheckpoint,
) -> Result<()> {
    let open = OpenState::open(summary, manifest)?;
    open.set_horizons(manifest)?;
    let families = open.state.verify()?;
    for family in &families {
        if family.unknown > 0 {
            let (name, keys) = (&family.column_family, family.unknown);
            let problem = format!("keys that this version does not know: family={name} keys={keys}");
            verified.problems.push(Found::inside(problem));
        }
    }
    for (index, shape) in open.shapes.iter().enumerate() {
        verified.operators.push(read_rows(&open, index, shape, &mut verified.problems)?);
    }
    for (index, shape) in (open.shapes.len()..).zip(&open.events) {
        verified.operators.push(read_events(&open, index, shape, &mut verified.problems)?);
    }
    for (rows, state) in verified.operators.iter_mut().zip(&manifest.operators) {
        let family = families.iter().find(|found| found.column_family == state.family);
        rows.expired = family.map_or(0, |found| found.expired);
    }
    Ok(())
}

fn read_rows(
    open: &OpenState,
    index: usize,
    shape: &Shape,
    problems: &mut Vec<Found>,
) -> Result<OperatorRows> {
    let name = shape.spec().name.clone();
    let mut rows = OperatorRows { name, panes: 0, events: 0, damaged: 0, expired: 0 };
    let mut row = shape.row();
    let mut scan = open.state.scan(FamilyId(index), ..)?;
    while let Some((pane, stored)) = scan.next_pane()? {
        rows.panes += 1;
        let read = check_place(shape, pane.end, pane.key).and_then(|()| shape.read(stored, &mut row));
        match read {
            Ok(events) => rows.events = rows.events.saturating_add(events),
            Err(why) => {
                rows.damaged += 1;
                if rows.damaged <= PANES_NAMED_MAX {
                    let key = String::from_utf8_lossy(pane.key);
                    let problem = format!("{why}: window={} key={key:?} end={}", rows.name, pane.end);
                    problems.push(Found::inside(problem));
                }
            }
        }
    }
    if rows.damaged > PANES_NAMED_MAX {
        let problem =
            format!("more panes are damaged: window={} panes={}", rows.name, rows.damaged - PANES_NAMED_MAX);
        problems.push(Found::inside(problem));
    }
    Ok(rows)
}

/// Reads the rows of an operator that keeps events, each as a pane of one event.
fn read_events(
    open: &OpenState,
    index: usize,
    shape: &EventShape,
    problems: &mut Vec<Found>,
) -> Result<OperatorRows> {
    let mut rows = OperatorRows { name: shape.name.clone(), panes: 0, events: 0, damaged: 0, expired: 0 };
    let mut scan = open.state.scan(FamilyId(index), ..)?;
    while let Some((row, stored)) = scan.next_pane()? {
        rows.panes += 1;
        match shape.check(row.end, row.key, stored) {
            Ok(()) => rows.events += 1,
            Err(why) => {
                rows.damaged += 1;
                if rows.damaged <= PANES_NAMED_MAX {
                    let (key, end) = (row.key.escape_ascii(), row.end);
                    let problem = format!("{why}: operator={} key={key} end={end}", rows.name);
                    problems.push(Found::inside(problem));
                }
            }
        }
    }
    Ok(rows)
}

/// A pane's window is one of the definition's, and its key has the definition's components.
fn check_place(shape: &Shape, end: EventTime, key: &[u8]) -> Result<(), String> {
    let spec = shape.spec();
    if !spec.windows.ends_at(end) {
        return Err("pane is of no window of its definition".to_owned());
    }
    match key_components(key, spec.key.len()) {
        Some(_) => Ok(()),
        None => Err("pane has another key than its definition".to_owned()),
    }
}
