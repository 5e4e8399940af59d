//! What an explanation is about, in words.

use super::ExplainOptions;
use super::frame::{Head, SourceRule};
use crate::inspect::Origin;
use crate::operator::{Advance, Mode, OperatorSpec, Repeat, Strategy};
use crate::pipeline::assemble;
use crate::pipeline::config::PipelineConfig;

/// The first part of an explanation; the key is filled in when it is known.
pub(super) fn head(
    config: &PipelineConfig,
    options: &ExplainOptions,
    spec: &OperatorSpec,
    checkpoint: Option<Origin>,
) -> Head {
    let rule = |strategy: Strategy| match strategy {
        Strategy::Bounded(delay) => format!("the latest event time less {delay}"),
        Strategy::Monotone => "the latest event time".to_owned(),
        Strategy::Punctuated => "what some events say".to_owned(),
        Strategy::None => "none".to_owned(),
    };
    let sources = assemble::sources(config)
        .map(|source| SourceRule { watermark: rule(source.strategy), name: source.name });
    let others = config.windows.iter().map(|window| &window.name).filter(|name| **name != spec.name);
    let by_clock = |repeat: Repeat| matches!(repeat, Repeat::Interval(_));
    Head {
        pipeline: config.name.clone(),
        window: spec.name.clone(),
        other_windows: if options.window.is_none() { others.cloned().collect() } else { Vec::new() },
        windows: spec.windows.to_string(),
        allowed_lateness: spec.allowed_lateness,
        fires: fires(spec),
        fires_by_clock: by_clock(spec.trigger.early()) || by_clock(spec.trigger.late()),
        advance: spec.advance,
        sources: sources.collect(),
        key_fields: spec.key.clone(),
        key: None,
        key_chosen: false,
        start: options.start,
        checkpoint,
        starts: None,
    }
}

/// In words, when a window fires.
fn fires(spec: &OperatorSpec) -> String {
    match (spec.mode, spec.advance) {
        (Mode::Append, Advance::Event) => spec.trigger.to_string(),
        (Mode::Append, Advance::Batch) => "at the end of the batch that closes it".to_owned(),
        (Mode::Update, Advance::Event) if spec.gathers_changes() => {
            "each changed pane, at intervals by the clock".to_owned()
        }
        (Mode::Update, Advance::Event) => "each changed pane, after each event".to_owned(),
        (Mode::Update, Advance::Batch) => "each changed pane, at the end of each batch".to_owned(),
        (Mode::Complete, Advance::Batch) => "all panes, at the end of each batch; nothing closes".to_owned(),
        (Mode::Complete, Advance::Event) => "all panes, at the end of the input; nothing closes".to_owned(),
    }
}
