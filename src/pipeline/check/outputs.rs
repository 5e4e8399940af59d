//! The outputs, as a start would judge them: by the same rules, of what is there now. Nothing is changed or locked.

use super::{CheckOptions, CheckReport, Finding, OutputCheck};
use crate::checkpoint::{LocalState, Manifest, holder};
use crate::pipeline::config::PipelineConfig;
use crate::pipeline::outputs::staged_outputs;
use crate::pipeline::places::{self, Place, places};
use crate::pipeline::sink::{AheadPolicy, Restored, SinkContext, StagedOutput, peek};
use crate::store::evolution::Verdict;

/// What is known of the state that a run would go on from.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// The checkpoint.
    pub(super) manifest: Option<&'a Manifest>,
    /// The state directory, as it is.
    pub(super) local: Option<&'a LocalState>,
    /// The highest generation that the repository knows: a run takes a higher one.
    pub(super) generation_above: u64,
}

pub(super) fn check(
    config: &PipelineConfig,
    known: Known<'_>,
    options: &CheckOptions,
    report: &mut CheckReport,
) {
    let Known { manifest, local, .. } = known;
    let staged = match manifest.map(|manifest| staged_outputs(config, manifest)).transpose() {
        Ok(staged) => staged.unwrap_or_default(),
        Err(error) => {
            report.findings.push(Finding::refused(&error));
            Vec::new()
        }
    };
    let places = places(config);
    refuse_orphans(&places, &staged, options, report);
    let mut due = staged;
    if options.accept_lost_output {
        match places::give_up(&places, &mut due) {
            Ok(lost) => report.findings.extend(lost.into_iter().map(|(output, rows)| Finding {
                verdict: Verdict::Compatible,
                message: format!(
                    "goes on without rows that the checkpoint staged: output={output} rows={rows}"
                ),
                remedy: None,
            })),
            Err(error) => report.findings.push(Finding::refused(&error)),
        }
    }
    let last_epoch = manifest.map_or(0, |manifest| manifest.epoch);
    let newest = local.and_then(|local| local.epochs.last().copied()).unwrap_or(0);
    let ahead = if options.set_aside_output { AheadPolicy::SetAside } else { AheadPolicy::Refuse };
    let restored = Restored { staged: &due, last_epoch, newest_epoch: newest.max(last_epoch), ahead };
    let context = context(known);
    // Whoever has the state directory has its outputs too: a run of this very pipeline.
    let runs = || holder(&config.state.directory).is_ok_and(|holder| holder.is_some());
    report.outputs.extend(places.iter().map(|place| judge(place, context, restored, &runs)));
}

/// Who the next run would be; a new lineage, where there is no state, is that of no output.
fn context(Known { manifest, local, generation_above }: Known<'_>) -> SinkContext {
    let lineage = manifest.map(|manifest| manifest.lineage).or(local.map(|local| local.lineage));
    let known = local.map(|local| local.generation).max(manifest.map(|manifest| manifest.generation));
    let known = known.max(Some(generation_above));
    SinkContext {
        lineage: lineage.map_or([0; 16], |id| id.0),
        generation: known.unwrap_or(0).saturating_add(1),
    }
}

fn refuse_orphans(
    places: &[Place<'_>],
    staged: &[StagedOutput],
    options: &CheckOptions,
    report: &mut CheckReport,
) {
    for orphan in staged.iter().filter(|file| places.iter().all(|place| place.name != file.sink)) {
        let (verdict, remedy) = match options.allow_dropped {
            true => (Verdict::Compatible, None),
            false => (
                Verdict::Refused,
                Some("put the output back and run once, or give it up with --allow-dropped".to_owned()),
            ),
        };
        let (sink, rows) = (&orphan.sink, orphan.rows);
        let message = format!(
            "the checkpoint holds rows for an output that the pipeline no longer has: output={sink} rows={rows}"
        );
        report.findings.push(Finding { verdict, message, remedy });
    }
}

fn judge(
    place: &Place<'_>,
    context: SinkContext,
    restored: Restored<'_>,
    runs: &dyn Fn() -> bool,
) -> OutputCheck {
    let checked = |verdict, detail: String, remedy: Option<&str>| OutputCheck {
        name: place.name.clone(),
        kind: place.kind,
        path: place.path.to_owned(),
        verdict,
        detail,
        remedy: remedy.map(str::to_owned),
    };
    let held = match place.refuse_held() {
        Err(_) if runs() => Ok(()),
        held => held,
    };
    let leaving = match place.preflight(context, restored).and_then(|leaving| held.map(|()| leaving)) {
        Ok(leaving) => leaving,
        Err(error) => return checked(Verdict::Refused, error.to_string(), error.remedy()),
    };
    if place.kind != "files" {
        return checked(Verdict::Same, "looked at when a run starts".to_owned(), None);
    }
    let found = match peek(place.path) {
        Ok(found) => found,
        Err(error) => return checked(Verdict::Refused, error.to_string(), error.remedy()),
    };
    let Some(found) = found else { return checked(Verdict::Same, "new".to_owned(), None) };
    if !leaving.is_empty() {
        let detail = format!("parts are moved aside: parts={}", leaving.len());
        return checked(Verdict::Compatible, detail, None);
    }
    if found.lineage != context.lineage {
        return checked(Verdict::Same, "empty, of another state".to_owned(), None);
    }
    checked(Verdict::Same, format!("goes on after {} parts", found.parts), None)
}
