//! What must hold for the rows of a database whose files are sound: every reference between manifest and tables, every
//! pane in a window of its definition and with events, every session apart from the others of its key.

use std::collections::{BTreeMap, HashMap};

use super::Finding;
use crate::checkpoint::{CheckpointSummary, Manifest};
use crate::error::Result;
use crate::event_time::{EventTime, Span};
use crate::inspect::scan::{Counter, PaneFilter, Scanned, Seen, Watcher, each_pane};
use crate::inspect::shape::OpenState;
use crate::inspect::status::WindowStatus;
use crate::operator::Accumulation;

/// Findings named for each operator and rule; of the others only the number is given.
const NAMED_MAX: u64 = 10;
/// Keys whose sessions are compared, about 100 MiB of them.
const KEYS_MAX: usize = 1 << 20;
const ADVICE: &str = "restore another checkpoint with --at, and report it: files are as they were written, so that the \
                      defect is older than they are";

/// Everything that the rows of a checkpoint break.
pub(super) fn check(
    summary: &CheckpointSummary,
    manifest: &Manifest,
    done: &mut Scanned,
    watcher: Watcher<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = read(summary, manifest, &mut findings, done, watcher) {
        findings.push(Finding::problem("readable", error.to_string(), ADVICE));
    }
    findings
}

fn read(
    summary: &CheckpointSummary,
    manifest: &Manifest,
    findings: &mut Vec<Finding>,
    done: &mut Scanned,
    watcher: Watcher<'_>,
) -> Result<()> {
    let open = OpenState::open(summary, manifest)?;
    tables(&open, manifest, findings)?;
    let before = *done;
    let mut last = Scanned::default();
    let mut shifted = |so_far: Scanned| {
        last = so_far;
        watcher(Scanned {
            rows: before.rows + so_far.rows,
            rows_about: before.rows_about + so_far.rows_about,
        });
    };
    let mut counter = Counter::new(manifest, &mut shifted);
    for index in 0..open.shapes.len() {
        let mut checking = Checking::new(&open, manifest, index);
        each_pane(&open, manifest, index, &PaneFilter::default(), &mut counter, &mut |seen| {
            checking.pane(seen);
            Ok(())
        })?;
        checking.finish(findings);
    }
    done.rows += last.rows;
    done.rows_about += last.rows_about;
    Ok(())
}

/// The tables that the database names are those of the manifest.
fn tables(open: &OpenState, manifest: &Manifest, findings: &mut Vec<Finding>) -> Result<()> {
    let tables = open.state.table_files()?;
    let mut problem = |what: String| findings.push(Finding::problem("tables-of-manifest", what, ADVICE));
    for table in &tables {
        let Some(range) = &table.range else { continue };
        match manifest.file(&table.name) {
            None => problem(format!(
                "the database has a table that the manifest does not name: file={}",
                table.name
            )),
            Some(file) => {
                let same = file.bytes == table.bytes
                    && file.family.as_ref() == Some(&range.column_family)
                    && file.smallest_key == range.smallest
                    && file.largest_key == range.largest;
                if !same {
                    problem(format!(
                        "the manifest says something else of a table than the database: file={}",
                        table.name
                    ));
                }
            }
        }
    }
    for file in manifest.files.iter().filter(|file| file.family.is_some()) {
        if !tables.iter().any(|table| table.name == file.name) {
            problem(format!("the manifest names a table that the database does not use: file={}", file.name));
        }
    }
    Ok(())
}

/// The rows of one operator as they are read.
struct Checking<'a> {
    open: &'a OpenState,
    manifest: &'a Manifest,
    index: usize,
    live: u64,
    broken: BTreeMap<&'static str, (u64, Vec<String>)>,
    // End of the last session of each key.
    sessions: HashMap<Box<[u8]>, EventTime>,
    sessions_left_out: bool,
}

impl<'a> Checking<'a> {
    fn new(open: &'a OpenState, manifest: &'a Manifest, index: usize) -> Self {
        Self {
            open,
            manifest,
            index,
            live: 0,
            broken: BTreeMap::new(),
            sessions: HashMap::new(),
            sessions_left_out: false,
        }
    }

    fn broken(&mut self, rule: &'static str, what: impl FnOnce() -> String) {
        let (count, named) = self.broken.entry(rule).or_default();
        *count += 1;
        if *count <= NAMED_MAX {
            named.push(what());
        }
    }

    fn pane(&mut self, seen: &Seen<'_>) {
        // What expired is on its way out and may be there in part.
        if seen.status == WindowStatus::Expired {
            return;
        }
        self.live += 1;
        let spec = self.open.shapes[self.index].spec();
        let place = || {
            let key = seen.key.escape_ascii();
            format!("key={key} start={} end={}", seen.piece.start, seen.piece.end)
        };
        // By what fires once, or keeps what it emitted, an empty pane cannot come about.
        if seen.events == Ok(0) && spec.accumulation == Accumulation::Accumulating {
            self.broken("panes-have-events", || format!("a pane has no events: {}", place()));
        }
        if let Some(gap) = spec.windows.session_gap().filter(|_| seen.events.is_ok()) {
            self.session(seen, gap, &place);
        }
    }

    fn session(&mut self, seen: &Seen<'_>, gap: Span, place: &dyn Fn() -> String) {
        let (start, end) = (seen.piece.start, seen.piece.end);
        if start.saturating_add(gap) > end {
            self.broken("sessions-as-long-as-gap", || {
                format!("a session is shorter than its gap: {}", place())
            });
        }
        let has_room = self.sessions.len() < KEYS_MAX;
        match self.sessions.get_mut(seen.key) {
            Some(before) => {
                let touches = start <= *before;
                *before = end.max(*before);
                if touches {
                    self.broken("sessions-apart", || {
                        format!("two sessions of a key touch and are not one: {}", place())
                    });
                }
            }
            None if has_room => {
                self.sessions.insert(seen.key.into(), end);
            }
            None => self.sessions_left_out = true,
        }
    }

    fn finish(self, findings: &mut Vec<Finding>) {
        let state = &self.manifest.operators[self.index];
        let name = &state.name;
        for (rule, (count, named)) in self.broken {
            let more = count.saturating_sub(NAMED_MAX);
            findings.extend(
                named
                    .into_iter()
                    .map(|what| Finding::problem(rule, format!("{what} operator={name}"), ADVICE)),
            );
            if more > 0 {
                findings.push(Finding::problem(
                    rule,
                    format!("and more of the same: operator={name} count={more}"),
                    ADVICE,
                ));
            }
        }
        if let Some(open_panes) = state.open_panes.filter(|&open_panes| open_panes != self.live) {
            let live = self.live;
            let what = format!(
                "the manifest counts other panes than there are: operator={name} manifest={open_panes} found={live}"
            );
            findings.push(Finding::problem("panes-as-counted", what, ADVICE));
        }
        if self.sessions_left_out {
            findings.push(Finding::warning(
                "sessions-apart",
                format!("too many keys: sessions of those beyond the first {KEYS_MAX} were not compared: operator={name}"),
                "nothing is known to be wrong",
            ));
        }
    }
}
