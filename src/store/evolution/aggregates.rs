//! The rules for aggregates: by name and function, whatever their order; what is new starts empty, or with what is kept
//! for others already.

use super::rules::Rules;
use super::shape::{aggregate_text, number_columns};
use super::text::plain;
use super::{Change, Verdict};
use crate::aggregate::{AggregateSpec, Conversion, Function, Stage, lane_for, shares_state};

/// What the aggregates of a window have become.
#[derive(Default)]
pub(super) struct Compared {
    pub(super) changes: Vec<Change>,
    // New column and the old one that it goes on with.
    columns: Vec<(usize, usize)>,
}

impl Compared {
    fn change(&mut self, what: &str, verdict: Verdict, effect: String, remedy: Option<String>) {
        self.changes.push(Change { what: plain(what), verdict, effect, remedy });
    }

    fn refuse(&mut self, what: &str, effect: String, remedy: &str) {
        self.change(what, Verdict::Refused, plain(&effect), Some(remedy.to_owned()));
    }

    fn note(&mut self, what: &str, effect: String) {
        self.change(what, Verdict::Compatible, plain(&effect), None);
    }
}

/// Compares, and sets the lanes of those asked for.
pub(super) fn compare(
    window: &str,
    stored: &[AggregateSpec],
    asked: &mut [AggregateSpec],
    rules: &Rules,
    open_windows: &str,
) -> Compared {
    let renames = rules.renames_of(window);
    let mut compared = Compared::default();
    let mut used = vec![false; stored.len()];
    let mut numbered = asked.to_vec();
    number_columns(&mut numbered);
    let mut pairs = vec![None; asked.len()];
    for (index, aggregate) in asked.iter_mut().enumerate() {
        aggregate.lane = 0;
        let find = |name: &str| stored.iter().position(|known| known.name == name);
        let was = renames.aggregates.get(&aggregate.name);
        let (by_name, by_was) = (find(&aggregate.name), was.and_then(|was| find(was)));
        let what = format!("aggregate {}", aggregate.name);
        if let (Some(_), Some(_), Some(was)) = (by_name, by_was, was) {
            let effect = format!(
                "the state has both \"{}\" and \"{was}\": which is meant is not clear",
                aggregate.name
            );
            compared.refuse(&what, effect, "give the renamed aggregate a name that the state does not have");
        }
        let Some(at) = by_name.or(by_was) else { continue };
        if std::mem::replace(&mut used[at], true) {
            compared.refuse(
                &what,
                "two aggregates claim one that is stored".to_owned(),
                "remove one of the `was`",
            );
            continue;
        }
        pairs[index] = Some(at);
        let old = &stored[at];
        aggregate.lane = old.lane;
        if by_name.is_none() {
            compared.note(&what, format!("goes on with what \"{}\" holds", old.name));
        }
        pair(
            &mut compared,
            &what,
            old,
            aggregate,
            renames.aggregates.contains_key(&aggregate.name),
            |field| renames.field(field).to_owned(),
        );
        if let (Some(new), Some(old)) = (&numbered[index].input, &old.input) {
            compared.columns.push((new.column, old.column));
        }
    }
    refuse_crossed(&mut compared);
    let order: Vec<usize> = pairs.iter().flatten().copied().collect();
    if order.windows(2).any(|pair| pair[0] > pair[1]) {
        compared.note("order of aggregates", "each goes on with what its name holds".to_owned());
    }
    let fresh = stored.iter().map(|aggregate| aggregate.lane).max().unwrap_or(0).saturating_add(1);
    for (index, aggregate) in asked.iter_mut().enumerate().filter(|(index, _)| pairs[*index].is_none()) {
        let column = numbered[index].input.as_ref().map(|input| input.column);
        let old_column = column.and_then(|column| {
            let known = compared.columns.iter().find(|(new, _)| *new == column).map(|&(_, old)| old);
            known.or_else(|| same_field(stored, aggregate, &renames))
        });
        if let (Some(new), Some(old)) = (column, old_column)
            && !compared.columns.contains(&(new, old))
        {
            compared.columns.push((new, old));
        }
        let (lane, complete) = lane_for(stored, aggregate, old_column, fresh);
        aggregate.lane = lane;
        let complete = complete || old_column.is_some_and(|column| shares_state(stored, aggregate, column));
        let effect = if complete {
            "new: told from what is kept for others already, so it is complete at once".to_owned()
        } else {
            format!("new: starts empty, {open_windows}")
        };
        compared.note(&format!("aggregate {}", aggregate.name), effect);
    }
    for (old, _) in stored.iter().zip(&used).filter(|(_, used)| !**used) {
        let what = format!("aggregate {}", old.name);
        if rules.allow_dropped {
            compared.note(&what, "not asked for any more: what it holds is dropped, as allowed".to_owned());
        } else {
            let remedy = "put it back, say `was` where it has only changed its name, or give up what it holds with \
                          --allow-dropped";
            compared.refuse(&what, "not asked for any more: what it holds would be lost".to_owned(), remedy);
        }
    }
    compared
}

/// Whether an aggregate can go on with what one of its name holds.
fn pair(
    compared: &mut Compared,
    what: &str,
    old: &AggregateSpec,
    new: &AggregateSpec,
    renamed: bool,
    old_field: impl Fn(&str) -> String,
) {
    const ANOTHER_NAME: &str = "change it back; or give the new aggregate another name, so that it starts by itself, and \
                                keep the old one or give it up with --allow-dropped";
    let differs = || format!("{} is not {}", aggregate_text(new), aggregate_text(old));
    let same_code = match (&old.defined, &new.defined) {
        (Some(old), Some(new)) => old.name() == new.name(),
        (None, None) => old.function == new.function,
        _ => false,
    };
    if !same_code {
        let hint = if renamed { " (as `was` says)" } else { "" };
        return compared.refuse(what, format!("{}{hint}", differs()), ANOTHER_NAME);
    }
    if let (Some(stored), Some(asked)) = (&old.defined, &new.defined)
        && stored.version() != asked.version()
    {
        let (from, to) = (stored.version(), asked.version());
        if asked.reads_version(from) {
            compared
                .note(what, format!("states of version {from} are migrated to version {to} by its own code"));
        } else {
            compared.refuse(
                what,
                format!("its states are of version {from}, the code is of version {to}"),
                "declare the migration: Aggregate::migrate in the code of the aggregate",
            );
        }
    }
    match (&old.input, &new.input) {
        (None, None) => {}
        (Some(stored), Some(asked)) => {
            if stored.field != asked.field && stored.field == old_field(&asked.field) {
                compared.note(what, format!("reads `{}`, which was `{}`", asked.field, stored.field));
            } else if stored.field != asked.field {
                let remedy = "say `field_was` where the field has only changed its name; else give the new aggregate another name";
                compared.refuse(what, differs(), remedy);
            }
            if stored.kind != asked.kind && new.function == Function::Count {
                let effect = "of counted values only the number is kept: their type may change";
                compared.note(what, effect.to_owned());
            } else if stored.kind != asked.kind {
                compared.refuse(what, differs(), ANOTHER_NAME);
            }
        }
        _ => compared.refuse(what, differs(), ANOTHER_NAME),
    }
}

/// The old column with the field and type of a new aggregate.
fn same_field(
    stored: &[AggregateSpec],
    aggregate: &AggregateSpec,
    renames: &super::Renames,
) -> Option<usize> {
    let input = aggregate.input.as_ref()?;
    let field = renames.field(&input.field);
    let known = stored.iter().filter_map(|old| old.input.as_ref());
    let mut same = known.filter(|old| old.field == field && old.kind == input.kind);
    same.next().map(|old| old.column)
}

/// One new column must go on with one old column, and the other way round: what aggregates share is kept once.
fn refuse_crossed(compared: &mut Compared) {
    compared.columns.sort_unstable();
    compared.columns.dedup();
    let crossed = |pairs: &[(usize, usize)]| {
        let apart = |(at, pair): (usize, &(usize, usize))| {
            pairs[..at].iter().any(|other| other.0 == pair.0 || other.1 == pair.1)
        };
        pairs.iter().enumerate().any(apart)
    };
    if crossed(&compared.columns) {
        let remedy = "rename one thing at a time, each followed by a run that makes a checkpoint";
        compared.refuse("fields", "two fields have become one, or one has become two".to_owned(), remedy);
    }
}

/// The stored aggregates with enough code to lay them out.
pub(super) fn with_code(stored: &[AggregateSpec], asked: &[AggregateSpec]) -> Vec<AggregateSpec> {
    let mut aggregates = stored.to_vec();
    for aggregate in &mut aggregates {
        if let Some(defined) = &aggregate.defined {
            let same = asked.iter().filter_map(|new| new.defined.as_ref());
            let same = same.into_iter().find(|new| new.name() == defined.name());
            aggregate.defined = Some(defined.laid_out_by(same));
        }
    }
    aggregates
}

/// How rows of the one become rows of the other.
pub(super) fn conversion(
    compared: &Compared,
    stored: (&[AggregateSpec], &[u64]),
    asked: (&[AggregateSpec], &[u64]),
    extra: &[Option<usize>],
) -> Conversion {
    let mut numbered = asked.0.to_vec();
    number_columns(&mut numbered);
    let from = Stage { aggregates: stored.0, extra: stored.1 };
    let to = Stage { aggregates: &numbered, extra: asked.1 };
    Conversion::new(from, to, &compared.columns, extra)
}
