//! Where the outputs of a pipeline go, before any of them is opened: whether a start may take them, and rows that a
//! checkpoint had staged there and that stayed behind with a machine.

use std::path::Path;

use super::assemble;
use super::config::{Format, OutputTarget, PipelineConfig};
use super::outputs::{DEAD_LETTER, LATE};
use super::sink::{
    JoinSinkSpec, Output, RecordSpec, RecordText, Restored, ResultSpec, STAGING, SinkContext, StagedOutput,
    peek, place_of, refuse_held, refuse_unusable,
};
use crate::error::Result;

/// An output, and where its rows go.
pub(super) struct Place<'a> {
    /// Name of the output, as in its handles.
    pub(super) name: String,
    /// `files`, `stdout` or `postgres`.
    pub(super) kind: &'static str,
    /// Its directory; that of rows which wait to be delivered, where they are no files.
    pub(super) path: &'a Path,
    spec: Spec,
}

enum Spec {
    Results(ResultSpec),
    Joined(JoinSinkSpec),
    Records(RecordSpec),
    Elsewhere,
}

impl Place<'_> {
    /// Refuses a place that another process holds. Nothing is changed.
    pub(super) fn refuse_held(&self) -> Result<()> {
        match self.kind {
            "stdout" => Ok(()),
            _ => Ok(refuse_held(self.path)?),
        }
    }

    /// The parts that a start would move aside, or why it would refuse, by what is there. Nothing is changed.
    pub(super) fn preflight(&self, context: SinkContext, restored: Restored<'_>) -> Result<Vec<String>> {
        if self.kind != "stdout" {
            refuse_unusable(self.path)?;
        }
        match &self.spec {
            Spec::Results(spec) => spec.preflight(context, restored),
            Spec::Joined(spec) => spec.preflight(context, restored),
            Spec::Records(spec) => spec.preflight(context, restored),
            Spec::Elsewhere => Ok(Vec::new()),
        }
    }

    /// True when what `staged` names neither waits here nor was published here.
    fn has_lost(&self, staged: &StagedOutput) -> Result<bool> {
        let place = place_of(staged)?;
        let published = peek(self.path)?.map_or(0, |found| found.published_epoch);
        let is_there = |path: &Path| std::fs::symlink_metadata(path).is_ok();
        let waits = is_there(&self.path.join(STAGING).join(&place.staged_name));
        Ok(place.epoch > published && !waits && !is_there(&self.path.join(&place.part_name)))
    }
}

/// All outputs, in the order in which a run opens them.
pub(super) fn places(config: &PipelineConfig) -> Vec<Place<'_>> {
    let windows = config.windows.iter().map(|window| {
        let spec = assemble::results(window);
        place(spec.name.clone(), &window.output.target, &window.output.path, Spec::Results(spec))
    });
    let joins = config.joins.iter().map(|join| {
        let spec = assemble::joined(join);
        place(spec.name.clone(), &join.output.target, &join.output.path, Spec::Joined(spec))
    });
    let text = record_text(config);
    let side = [(LATE, &config.late), (DEAD_LETTER, &config.dead_letter)].into_iter();
    let side = side.filter_map(|(name, path)| {
        let path = path.as_deref()?;
        let spec = RecordSpec { name: name.to_owned(), directory: path.to_owned(), text };
        Some(place(name.to_owned(), &OutputTarget::Files, path, Spec::Records(spec)))
    });
    windows.chain(joins).chain(side).collect()
}

/// What the original text of late events and rejected records is: rows of Parquet are written down as JSON. Text that is no JSON goes out as a string either way.
pub(super) fn record_text(config: &PipelineConfig) -> RecordText {
    match config.sources.iter().any(|source| matches!(source.format, Format::JsonLines | Format::Parquet)) {
        true => RecordText::Json,
        false => RecordText::Plain,
    }
}

fn place<'a>(name: String, target: &OutputTarget, path: &'a Path, spec: Spec) -> Place<'a> {
    match target {
        OutputTarget::Files => Place { name, kind: "files", path, spec },
        OutputTarget::Console => Place { name, kind: "stdout", path, spec: Spec::Elsewhere },
        OutputTarget::Postgres(_) => Place { name, kind: "postgres", path, spec: Spec::Elsewhere },
    }
}

/// Refuses a start that one of the outputs would refuse, while none of them is touched yet.
pub(super) fn refuse_misfits(
    config: &PipelineConfig,
    context: SinkContext,
    restored: Restored<'_>,
) -> Result<()> {
    places(config).iter().try_for_each(|place| {
        place.preflight(context, restored)?;
        place.refuse_held()
    })
}

/// Takes rows out of `staged` that are nowhere any more: their names and numbers of rows.
pub(super) fn give_up(places: &[Place<'_>], staged: &mut Vec<StagedOutput>) -> Result<Vec<(String, u64)>> {
    let (mut lost, mut kept) = (Vec::new(), Vec::with_capacity(staged.len()));
    for file in staged.drain(..) {
        let place = places.iter().find(|place| place.name == file.sink);
        match place.map(|place| place.has_lost(&file)).transpose()? {
            Some(true) => lost.push((file.sink, file.rows)),
            Some(false) | None => kept.push(file),
        }
    }
    *staged = kept;
    Ok(lost)
}
