//! The output directories, as a start would judge them. Nothing in them is changed, and nothing is locked.

use std::path::Path;

use super::{CheckReport, Finding, OutputCheck};
use crate::checkpoint::Manifest;
use crate::pipeline::assemble;
use crate::pipeline::config::{Format, OutputTarget, PipelineConfig};
use crate::pipeline::outputs::{DEAD_LETTER, LATE, staged_outputs};
use crate::pipeline::sink::{RecordText, StagedOutput, StagedPlace, peek, place_of, records_look};
use crate::store::evolution::Verdict;

/// An output of the pipeline file.
struct Output<'a> {
    name: String,
    path: &'a Path,
    // `None` where rows go elsewhere, and the directory only holds what was not delivered yet.
    look: Option<String>,
}

pub(super) fn check(
    config: &PipelineConfig,
    manifest: Option<&Manifest>,
    set_aside: bool,
    allow_dropped: bool,
    report: &mut CheckReport,
) {
    let staged = match manifest.map(|manifest| staged_outputs(config, manifest)).transpose() {
        Ok(staged) => staged.unwrap_or_default(),
        Err(error) => {
            report.findings.push(Finding::refused(&error));
            Vec::new()
        }
    };
    let outputs = outputs(config);
    for output in &outputs {
        report.outputs.push(judge(output, manifest, &staged, set_aside));
    }
    for orphan in staged.iter().filter(|file| outputs.iter().all(|output| output.name != file.sink)) {
        let (verdict, remedy) = match allow_dropped {
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

fn outputs(config: &PipelineConfig) -> Vec<Output<'_>> {
    let windows = config.windows.iter().map(|window| {
        let spec = assemble::results(window);
        let look = (window.output.target == OutputTarget::Files).then(|| spec.look());
        Output { look, name: spec.name, path: &window.output.path }
    });
    let joins = config.joins.iter().map(|join| {
        let spec = assemble::joined(join);
        let look = (join.output.target == OutputTarget::Files).then(|| spec.look());
        Output { look, name: spec.name, path: &join.output.path }
    });
    let json = config.sources.iter().any(|source| source.format == Format::JsonLines);
    let text = if json { RecordText::Json } else { RecordText::Plain };
    let side = [(LATE, &config.late), (DEAD_LETTER, &config.dead_letter)].into_iter();
    let side = side.filter_map(|(name, path)| {
        Some(Output { name: name.to_owned(), path: path.as_deref()?, look: Some(records_look(text)) })
    });
    windows.chain(joins).chain(side).collect()
}

fn judge(
    output: &Output<'_>,
    manifest: Option<&Manifest>,
    staged: &[StagedOutput],
    set_aside: bool,
) -> OutputCheck {
    let checked = |verdict, detail: String, remedy: Option<&str>| OutputCheck {
        name: output.name.clone(),
        path: output.path.to_owned(),
        verdict,
        detail,
        remedy: remedy.map(str::to_owned),
    };
    let misfit = |detail: String, remedy: &str| match set_aside {
        true => checked(Verdict::Compatible, format!("{detail}; its parts are moved aside"), None),
        false => checked(Verdict::Refused, detail, Some(remedy)),
    };
    let found = match output.look.as_ref().map(|_| peek(output.path)).transpose() {
        Ok(found) => found.flatten(),
        Err(error) => return checked(Verdict::Refused, error.to_string(), error.remedy()),
    };
    let due = staged.iter().find(|file| file.sink == output.name);
    let published = found.as_ref().map_or(0, |found| found.published_epoch);
    if let Some(file) = due.filter(|_| output.look.is_some()) {
        let StagedPlace { epoch, staged_name, part_name } = match place_of(file) {
            Ok(place) => place,
            Err(error) => return checked(Verdict::Refused, error.to_string(), None),
        };
        let is_there = |path: &Path| std::fs::symlink_metadata(path).is_ok();
        let waits = is_there(&output.path.join(".staging").join(staged_name));
        if epoch > published && !waits && !is_there(&output.path.join(part_name)) {
            let detail = format!("the rows that the checkpoint staged are not here: rows={}", file.rows);
            let remedy = "put the output back where it was and run once; then it can move";
            return checked(Verdict::Refused, detail, Some(remedy));
        }
    }
    let Some(look) = &output.look else {
        return checked(Verdict::Same, "looked at when a run starts".to_owned(), None);
    };
    let (Some(found), Some(manifest)) = (found, manifest) else {
        return checked(Verdict::Same, "new".to_owned(), None);
    };
    if found.lineage != manifest.lineage.0 {
        if found.parts == 0 {
            return checked(Verdict::Same, "empty, of another state".to_owned(), None);
        }
        let detail = format!("has parts of another state: parts={}", found.parts);
        return misfit(detail, "write to another directory, or run with --set-aside-output");
    }
    if found.published_epoch > manifest.epoch {
        let detail = format!("is ahead of the checkpoint: published_epoch={}", found.published_epoch);
        return misfit(detail, "restore a newer checkpoint, or run with --set-aside-output");
    }
    if found.look != *look && found.parts > 0 {
        let detail = format!("has parts with other columns or another format: parts={}", found.parts);
        return misfit(
            detail,
            "run once with --set-aside-output, which moves the old parts into a hidden folder of the directory",
        );
    }
    checked(Verdict::Same, format!("goes on after {} parts", found.parts), None)
}
