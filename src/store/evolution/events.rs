//! The rules for joins and deduplication: they keep events as they came, so little about them can change.

use super::shape::{of_events, of_stored};
use super::text::plain;
use super::{Change, Facet, OperatorChange, Verdict};
use crate::checkpoint::{Manifest, OperatorState};
use crate::operator::EventDefinition;

/// One that is not stored.
pub(super) fn new(manifest: &Manifest, state: &OperatorState) -> OperatorChange {
    let (noun, shape) = of_stored(state);
    let change = Change {
        what: noun.to_owned(),
        verdict: Verdict::Compatible,
        effect: format!(
            "new: it starts empty at the watermark of the checkpoint, {}, and knows no event before it",
            manifest.watermark
        ),
        remedy: None,
    };
    let shape = shape.into_iter().map(|(what, asked)| Facet { what, stored: None, asked: Some(asked) });
    OperatorChange {
        noun,
        name: state.name.clone(),
        was: None,
        verdict: change.verdict,
        changes: vec![change],
        shape: shape.collect(),
    }
}

/// One that is stored under the same name.
pub(super) fn compare(stored: &OperatorState, asked: &OperatorState) -> OperatorChange {
    let (noun, new) = of_stored(asked);
    let (_, old) = of_stored(stored);
    let definitions = [stored, asked].map(|state| serde_json::from_str::<EventDefinition>(&state.definition));
    let changes = match &definitions {
        _ if same(stored, asked) => Vec::new(),
        [Ok(old), Ok(new)] if stored.state_version == asked.state_version => vec![difference(old, new)],
        _ => vec![refused(
            noun,
            "it is stored as something else, or by a version that wrote it differently".to_owned(),
        )],
    };
    let verdict = changes.iter().map(|change| change.verdict).max().unwrap_or_default();
    let name = plain(&asked.name);
    OperatorChange { noun, name, was: None, verdict, changes, shape: side_by_side(old, new) }
}

fn same(stored: &OperatorState, asked: &OperatorState) -> bool {
    (&stored.definition, stored.fingerprint, stored.state_version)
        == (&asked.definition, asked.fingerprint, asked.state_version)
}

fn difference(old: &EventDefinition, new: &EventDefinition) -> Change {
    match (old, new) {
        (EventDefinition::Dedup(old), EventDefinition::Dedup(new)) if old.by == new.by => Change {
            what: "within".to_owned(),
            verdict: Verdict::Compatible,
            effect: format!(
                "{} instead of {}, for ids that come from now on: those remembered are forgotten when it was planned",
                new.within, old.within
            ),
            remedy: None,
        },
        _ => {
            let differ: Vec<String> = side_by_side(of_events(old), of_events(new))
                .into_iter()
                .filter(|facet| facet.stored != facet.asked)
                // The line that is called like the thing itself has its kind and its interval.
                .map(|facet| if facet.what == "join" { "kind or within".to_owned() } else { facet.what })
                .collect();
            let verb = if differ.len() == 1 { "differs" } else { "differ" };
            refused(new.noun(), format!("what it keeps is another thing now: {} {verb}", differ.join(", ")))
        }
    }
}

fn refused(noun: &str, effect: String) -> Change {
    let remedy = format!(
        "change it back; or give the new {noun} another name, so that it starts empty, and give up the old one with \
         --allow-dropped"
    );
    Change { what: noun.to_owned(), verdict: Verdict::Refused, effect, remedy: Some(remedy) }
}

/// Two lists of properties as one.
pub(super) fn side_by_side(old: Vec<(String, String)>, new: Vec<(String, String)>) -> Vec<Facet> {
    let mut facets: Vec<Facet> =
        old.into_iter().map(|(what, stored)| Facet { what, stored: Some(stored), asked: None }).collect();
    for (what, asked) in new {
        match facets.iter_mut().find(|facet| facet.what == what) {
            Some(facet) => facet.asked = Some(asked),
            None => facets.push(Facet { what, stored: None, asked: Some(asked) }),
        }
    }
    facets
}
