//! The rules for windows: what of a definition may change under the panes that are stored.

use super::aggregates;
use super::events::side_by_side;
use super::rules::{Renames, Rules};
use super::shape::{of_stored, of_window, stored_spec};
use super::text::plain;
use super::{Change, Facet, OperatorChange, Origin, Rewrite, Verdict, start_of};
use crate::aggregate::{Conversion, Layout, STATE_VERSION};
use crate::checkpoint::{Manifest, OperatorState};
use crate::event_time::{EventTime, Watermark, Windows};
use crate::operator::{Mode, OperatorSpec, Trigger};

const OTHER_WINDOW: &str = "change it back; or give the new window another name, so that it starts empty, and give up the old one \
                            with --allow-dropped";

/// A window that is not stored.
pub(super) fn new(manifest: &Manifest, spec: &OperatorSpec) -> OperatorChange {
    let effect = match start_of(manifest, spec) {
        Watermark::None => "new: it starts empty".to_owned(),
        start => format!(
            "new: it starts empty at watermark {start}; windows that end by then are not produced, and those under way \
             cover only what comes after the checkpoint ({})",
            under_way(manifest, spec, start)
        ),
    };
    let change = Change { what: "window".to_owned(), verdict: Verdict::Compatible, effect, remedy: None };
    let shape = of_window(spec).into_iter();
    let shape = shape.map(|(what, asked)| Facet { what, stored: None, asked: Some(asked) }).collect();
    let name = plain(&spec.name);
    OperatorChange { noun: "window", name, was: None, verdict: change.verdict, changes: vec![change], shape }
}

/// Which windows may hold events from before the checkpoint and are not closed.
fn under_way(manifest: &Manifest, spec: &OperatorSpec, watermark: Watermark) -> String {
    let seen = manifest.partitions.iter().filter_map(|partition| partition.max_time).max();
    let Some(seen) = seen else { return "no event was seen yet".to_owned() };
    let last = match &spec.windows {
        Windows::Global => return "the window of all time".to_owned(),
        Windows::Session { gap } => Some(seen.saturating_add(*gap)),
        windows if windows.reaches(seen) => windows.windows_of(seen).map(|window| window.end).max(),
        _ => None,
    };
    match (last, watermark) {
        (Some(last), watermark) if watermark.closed(last) => "none is open".to_owned(),
        (Some(last), Watermark::At(time)) => format!("windows that end after {time} and by {last}"),
        (Some(last), _) => format!("windows that end by {last}"),
        (None, _) => "none is open".to_owned(),
    }
}

/// A window that is stored, under its name or an old one. Sets the lanes of its aggregates.
pub(super) fn compare(
    manifest: &Manifest,
    from: usize,
    spec: &mut OperatorSpec,
    rules: &Rules,
) -> (OperatorChange, Origin) {
    let state = &manifest.operators[from];
    let renamed = state.name != spec.name;
    let mut changes = Vec::new();
    if renamed {
        let effect = format!("its panes are taken over from \"{}\"", state.name);
        changes.push(note("name", effect));
    }
    let migration = rules
        .migrations
        .iter()
        .find(|(window, migration)| *window == spec.name && migration.accepts(state))
        .map(|(_, migration)| std::sync::Arc::clone(migration));
    let conversion = match (read(state, migration.is_some()), &migration) {
        (Err(change), _) => {
            changes.push(change);
            None
        }
        (Ok(old), Some(_)) => {
            compare_windows(&old, spec, &rules.renames_of(&spec.name), &mut changes);
            spec.aggregates.iter_mut().for_each(|aggregate| aggregate.lane = 0);
            changes
                .push(note("aggregates", "rewritten by the migration that the program declares".to_owned()));
            None
        }
        (Ok(old), None) => convert(manifest, state, &old, spec, rules, &mut changes),
    };
    let verdict = changes.iter().map(|change| change.verdict).max().unwrap_or_default();
    let rewrite = match migration {
        Some(migration) => Some(Rewrite::Migrate(migration)),
        None => conversion.filter(|conversion| !conversion.is_identity()).map(Rewrite::Convert),
    };
    let origin = match verdict {
        Verdict::Same => Origin::Same(from),
        _ => Origin::Taken { from, rewrite, renamed },
    };
    let (_, stored) = of_stored(state);
    let change = OperatorChange {
        noun: "window",
        name: plain(&spec.name),
        was: renamed.then(|| plain(&state.name)),
        verdict,
        changes,
        shape: side_by_side(stored, of_window(spec)),
    };
    (change, origin)
}

fn convert(
    manifest: &Manifest,
    state: &OperatorState,
    old: &OperatorSpec,
    spec: &mut OperatorSpec,
    rules: &Rules,
    changes: &mut Vec<Change>,
) -> Option<Conversion> {
    let stored = aggregates::with_code(&old.aggregates, &spec.aggregates);
    if Layout::new(&stored).fingerprint() != state.fingerprint {
        changes.push(unreadable("its fingerprint is not that of its definition".to_owned()));
        return None;
    }
    compare_windows(old, spec, &rules.renames_of(&spec.name), changes);
    let open = match under_way(manifest, old, state.watermark) {
        text if text == "none is open" => "no window is open".to_owned(),
        text => format!("so these cover only what comes after the checkpoint: {text}"),
    };
    let window = spec.name.clone();
    let compared = aggregates::compare(&window, &stored, &mut spec.aggregates, rules, &open);
    changes.extend(compared.changes.iter().cloned());
    if changes.iter().any(|change| change.verdict == Verdict::Refused) {
        return None;
    }
    let from = (stored.as_slice(), &old.extra_words()[..]);
    let to = (spec.aggregates.as_slice(), &spec.extra_words()[..]);
    Some(aggregates::conversion(&compared, from, to, &extra_sources(old, spec)))
}

fn read(state: &OperatorState, migrated: bool) -> Result<OperatorSpec, Change> {
    if state.state_version != STATE_VERSION && !migrated {
        let (found, known) = (state.state_version, STATE_VERSION);
        return Err(unreadable(format!("its state is of version {found}, this build reads version {known}")));
    }
    stored_spec(state).ok_or_else(|| {
        unreadable("it is stored as something else, or by a version that defined it differently".to_owned())
    })
}

fn unreadable(effect: String) -> Change {
    refused("state", effect, "use the version of floodmark that wrote it, or give the window another name")
}

fn note(what: &str, effect: String) -> Change {
    Change { what: what.to_owned(), verdict: Verdict::Compatible, effect: plain(&effect), remedy: None }
}

fn refused(what: &str, effect: String, remedy: &str) -> Change {
    let remedy = Some(remedy.to_owned());
    Change { what: what.to_owned(), verdict: Verdict::Refused, effect: plain(&effect), remedy }
}

/// Everything but the aggregates.
fn compare_windows(old: &OperatorSpec, new: &OperatorSpec, renames: &Renames, changes: &mut Vec<Change>) {
    if old.windows != new.windows {
        let effect = "panes are kept by the windows that they are of".to_owned();
        changes.push(refused("windows", effect, OTHER_WINDOW));
    }
    compare_key(old, new, renames, changes);
    let mut fixed = |what: &str, same: bool, effect: &str| {
        if !same {
            changes.push(refused(what, effect.to_owned(), OTHER_WINDOW));
        }
    };
    fixed("time", old.time == new.time, "panes are placed by another clock");
    fixed(
        "advance",
        old.advance == new.advance,
        "windows that are open and closed are told apart by another rule",
    );
    fixed(
        "mode",
        old.mode == new.mode,
        "what readers were given so far and what comes would mean different things",
    );
    fixed("retractions", old.retractions == new.retractions, "results given so far could not be taken back");
    fixed(
        "accumulation",
        old.accumulation == new.accumulation,
        "panes hold what is left after their last firing, or all of it",
    );
    fixed("input", old.input == new.input, "its events come from elsewhere");
    if old.sources != new.sources {
        let effect = "open windows hold what came of the sources that were read until now".to_owned();
        changes.push(note("sources", effect));
    }
    if old.windows == new.windows && old.windows.overlap() && old.fires_once() != new.fires_once() {
        let effect = "overlapping windows that fire once are kept in slices, others window by window: the one cannot \
                      be made of the other";
        changes.push(refused("stored form", effect.to_owned(), OTHER_WINDOW));
    }
    compare_trigger(old, new, changes);
    compare_lateness(old, new, changes);
}

fn compare_key(old: &OperatorSpec, new: &OperatorSpec, renames: &Renames, changes: &mut Vec<Change>) {
    let was = |field: &String| renames.field(field).to_owned();
    let fits = |(old, new): (&String, &String)| old == new || *old == was(new);
    if old.key.len() != new.key.len() || !old.key.iter().zip(&new.key).all(fits) {
        let remedy = "put the same fields in the same order, say `was` where a field has only changed its name, or give the \
                      window another name";
        let effect = "panes are kept by their key: its fields, and their order, are part of it";
        changes.push(refused("key", effect.to_owned(), remedy));
    } else if old.key != new.key {
        changes.push(note("key", "fields have new names, and hold what they held".to_owned()));
    }
}

fn compare_trigger(old: &OperatorSpec, new: &OperatorSpec, changes: &mut Vec<Change>) {
    if old.trigger == new.trigger {
        return;
    }
    let begins_firing =
        old.trigger == Trigger::Watermark && old.mode == Mode::Append && new.trigger.on_time();
    changes.push(match begins_firing {
        true => {
            note("trigger", "firings before and after the end begin with the events that come now".to_owned())
        }
        false => {
            let effect = "what a pane remembers of its firings would mean something else";
            refused("trigger", effect.to_owned(), OTHER_WINDOW)
        }
    });
}

fn compare_lateness(old: &OperatorSpec, new: &OperatorSpec, changes: &mut Vec<Change>) {
    let (stored, asked) = (old.allowed_lateness, new.allowed_lateness);
    if asked > stored {
        let effect = "longer: windows that were forgotten already stay so, and events for them late";
        changes.push(note("allowed lateness", effect.to_owned()));
    } else if asked < stored && old.trigger == Trigger::Watermark && new.trigger == Trigger::Watermark {
        let effect = "shorter: windows that have expired by it are forgotten, and events for them late";
        changes.push(note("allowed lateness", effect.to_owned()));
    } else if asked < stored {
        let effect = "shorter: late changes that wait for their firing would be lost";
        changes.push(refused("allowed lateness", effect.to_owned(), "change it back"));
    }
}

/// The extra words of a pane: the start of a session, then what it remembers of its firings; and for each of the new
/// ones which old one it takes over.
fn extra_sources(old: &OperatorSpec, new: &OperatorSpec) -> Vec<Option<usize>> {
    let words = |spec: &OperatorSpec| spec.extra_words();
    let sessions = usize::from(old.windows.session_gap().is_some());
    let (kept, asked) = (words(old).len(), words(new).len());
    (0..asked).map(|index| (index < sessions || kept == asked).then_some(index)).collect()
}

/// The horizon under which a window's state is gone once it is taken over: what had expired before stays so when the
/// lateness has grown.
pub(super) fn horizon(state: &OperatorState, old: &OperatorSpec, new: &OperatorSpec) -> Watermark {
    let grown = new.allowed_lateness.as_millis().saturating_sub(old.allowed_lateness.as_millis()).max(0);
    match state.watermark {
        Watermark::At(time) => Watermark::At(EventTime::from_millis(time.as_millis().saturating_add(grown))),
        other => other,
    }
}
