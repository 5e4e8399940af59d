//! State evolution: whether stored state fits a definition that has changed since, what changes, and how it is taken
//! over.
//!
//! Pure where it decides: `plan` goes from a manifest and a definition to a `Plan`, whose report says the verdict
//! on each operator. `window`, `aggregates` and `events` hold the rules, `text` the words, `apply` carries a plan out on a
//! fresh working database. The rules are written down in `docs/EVOLUTION.md`.

mod aggregates;
mod apply;
mod events;
mod migration;
mod rules;
mod shape;
mod text;
mod window;

use serde::Serialize;

pub(super) use apply::{horizon_of, reshape};
pub use migration::{PaneMigration, StoredPane};
pub use rules::Renames;
pub(crate) use rules::Rules;
pub(crate) use shape::stored_spec;

use crate::aggregate::Conversion;
use crate::checkpoint::{Manifest, OperatorState};
use crate::event_time::Watermark;
use crate::operator::OperatorSpec;

/// What a change means for stored state, from the harmless to the one that keeps it from being opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing changes.
    #[default]
    Same,
    /// The state is taken over, with these changes.
    Compatible,
    /// The state is not opened.
    Refused,
}

impl Verdict {
    /// Stable lowercase name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Compatible => "compatible",
            Self::Refused => "refused",
        }
    }
}

/// One difference between what is stored and what is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What differs: `allowed lateness`, `aggregate total`.
    pub what: String,
    /// Whether the state can be taken over in spite of it.
    pub verdict: Verdict,
    /// What happens to the state, or why it is refused.
    pub effect: String,
    /// What to do about a refusal.
    pub remedy: Option<String>,
}

/// One property of an operator as it is stored and as it is asked for, to be read side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facet {
    /// Which property.
    pub what: String,
    /// As it is stored; absent where the stored operator has nothing of the kind.
    pub stored: Option<String>,
    /// As it is asked for.
    pub asked: Option<String>,
}

/// The verdict on one operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorChange {
    /// `window`, `join` or `dedup`.
    pub noun: &'static str,
    /// Its name; of one that is gone the stored one.
    pub name: String,
    /// The name that it is stored under, when that is another.
    pub was: Option<String>,
    /// The worst of its changes.
    pub verdict: Verdict,
    /// What differs.
    pub changes: Vec<Change>,
    /// Old and new shape side by side; only properties that both or either have.
    pub shape: Vec<Facet>,
}

/// Whether the state of a checkpoint fits a definition, operator by operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evolution {
    /// The worst of the verdicts.
    pub verdict: Verdict,
    /// The checkpoint.
    pub epoch: u64,
    /// Version of Floodmark that wrote it.
    pub created_by: String,
    /// Its watermark.
    pub watermark: String,
    /// Each operator: those asked for in their order, then those that are gone.
    pub operators: Vec<OperatorChange>,
}

/// Where the state of an operator comes from.
#[derive(Debug)]
pub(super) enum Origin {
    /// It has none.
    New,
    /// The stored operator at this index, as it is.
    Same(usize),
    /// The stored operator at `from`.
    Taken {
        from: usize,
        /// How its panes are rewritten; `None` when they stay as they are.
        rewrite: Option<Rewrite>,
        /// It has another name there.
        renamed: bool,
    },
}

impl Origin {
    /// The stored operator.
    pub(super) const fn stored(&self) -> Option<usize> {
        match self {
            Self::New => None,
            Self::Same(from) | Self::Taken { from, .. } => Some(*from),
        }
    }
}

/// How panes are rewritten.
#[derive(Debug)]
pub(super) enum Rewrite {
    /// By the rules.
    Convert(Conversion),
    /// By a migration that the program declared.
    Migrate(std::sync::Arc<dyn PaneMigration>),
}

/// What is to become of stored state.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What people are told.
    pub(crate) report: Evolution,
    /// For each operator asked for, windows first.
    pub(super) origins: Vec<Origin>,
    /// Stored operators whose state is dropped.
    pub(super) gone: Vec<usize>,
}

impl Plan {
    /// True when the families of the state database have to change.
    pub(super) fn reshapes(&self) -> bool {
        let touches = |origin: &Origin| match origin {
            Origin::New => true,
            Origin::Same(_) => false,
            Origin::Taken { rewrite, renamed, .. } => rewrite.is_some() || *renamed,
        };
        !self.gone.is_empty() || self.origins.iter().any(touches)
    }
}

/// Compares stored operators with those asked for. What is stored of `windows` beside their definition, the lanes of
/// their aggregates, is set in them. `events` are the joins and deduplications as a checkpoint would describe them.
pub(crate) fn plan(
    manifest: &Manifest,
    windows: &mut [OperatorSpec],
    events: &[OperatorState],
    rules: &Rules,
) -> Plan {
    let mut operators = Vec::new();
    let mut origins = Vec::new();
    let mut used = vec![false; manifest.operators.len()];
    let asked_names: Vec<String> = windows
        .iter()
        .map(|spec| spec.name.clone())
        .chain(events.iter().map(|state| state.name.clone()))
        .collect();
    let mut take = |name: &str, was: Option<&str>| {
        let find = |name: &str| manifest.operators.iter().position(|state| state.name == name);
        // A name that somebody else asks for is theirs.
        let old = || was.filter(|was| !asked_names.iter().any(|asked| asked == was)).and_then(find);
        let index = find(name).or_else(old)?;
        (!std::mem::replace(&mut used[index], true)).then_some(index)
    };
    for spec in windows.iter_mut() {
        let renames = rules.renames_of(&spec.name);
        let (change, origin) = match take(&spec.name, renames.was.as_deref()) {
            None => (window::new(manifest, spec), Origin::New),
            Some(from) => window::compare(manifest, from, spec, rules),
        };
        operators.push(change);
        origins.push(origin);
    }
    for state in events {
        let (change, origin) = match take(&state.name, None) {
            None => (events::new(manifest, state), Origin::New),
            Some(from) => (events::compare(&manifest.operators[from], state), Origin::Same(from)),
        };
        operators.push(change);
        origins.push(origin);
    }
    let gone: Vec<usize> = (0..used.len()).filter(|&index| !used[index]).collect();
    operators.extend(gone.iter().map(|&index| gone_operator(&manifest.operators[index], rules)));
    let verdict = operators.iter().map(|operator| operator.verdict).max().unwrap_or_default();
    let report = Evolution {
        verdict,
        epoch: manifest.epoch,
        created_by: text::plain(&manifest.created_by),
        watermark: manifest.watermark.to_string(),
        operators,
    };
    Plan { report, origins, gone }
}

/// From which watermark on a new operator takes part: what has passed is not produced.
pub(super) fn start_of(manifest: &Manifest, spec: &OperatorSpec) -> Watermark {
    use crate::operator::{Advance, BatchWatermark, TimeDomain};
    if spec.time == TimeDomain::Processing {
        return Watermark::None;
    }
    let stored = manifest.operators.iter().filter_map(|state| Some((stored_spec(state)?, state.watermark)));
    match (&spec.input, spec.advance) {
        // A step is never ahead of what it reads.
        (Some(input), _) => {
            let known = manifest.operators.iter().find(|state| state.name == *input);
            known.map_or(manifest.watermark, |state| state.watermark)
        }
        (None, Advance::Event) => manifest.watermark,
        (None, Advance::Batch) => {
            let reached = stored.filter(|(spec, _)| spec.advance == Advance::Batch).map(|(_, at)| at).max();
            reached.unwrap_or_else(|| BatchWatermark::new(manifest.batch_watermark).next())
        }
    }
}

fn gone_operator(state: &OperatorState, rules: &Rules) -> OperatorChange {
    let (noun, shape) = shape::of_stored(state);
    let name = text::plain(&state.name);
    let change = if rules.allow_dropped {
        Change {
            what: noun.to_owned(),
            verdict: Verdict::Compatible,
            effect: "not asked for any more: its state is dropped, as allowed".to_owned(),
            remedy: None,
        }
    } else {
        Change {
            what: noun.to_owned(),
            verdict: Verdict::Refused,
            effect: "not asked for any more: its open state would be lost".to_owned(),
            remedy: Some(format!(
                "put the {noun} back, say `was = \"{name}\"` where a window has only changed its name, or give up its state \
                 with --allow-dropped"
            )),
        }
    };
    let shape = shape.into_iter().map(|(what, stored)| Facet { what, stored: Some(stored), asked: None });
    OperatorChange {
        noun,
        name,
        was: None,
        verdict: change.verdict,
        changes: vec![change],
        shape: shape.collect(),
    }
}

#[cfg(test)]
mod tests;
