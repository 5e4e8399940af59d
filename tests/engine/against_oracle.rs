//! The oracle against answers that were found elsewhere: it has to be right before it can judge.

use std::collections::BTreeMap;

use crate::cases::{Difference, Golden, compare, conformance, first_difference, goldens, report, scenarios};
use crate::oracle::{Observed, Op, Oracle};

#[test]
fn the_oracle_gives_the_known_answer_to_every_conformance_case() {
    let cases = conformance();
    assert!(cases.len() >= 104, "only {} cases found", cases.len());
    let check = |settings, ops: &[Op], expect: &Result<Observed, String>| match (
        Oracle::run(settings, ops),
        expect,
    ) {
        (Ok(mut found), Ok(expect)) => {
            found.watermarks.clear();
            // The order of all rows is stated for the oracle.
            let order = |observed: &Observed| -> Vec<_> {
                let emits = observed.emits.iter();
                emits.map(|emit| (emit.at, emit.row.end, emit.row.start, emit.row.key.clone())).collect()
            };
            if order(&found) != order(expect) {
                return Err(format!("order of rows: {:?}", found.emits));
            }
            compare(expect, &found).map_err(|difference| difference.to_string())
        }
        (Err(refusal), Err(error)) if refusal.name() == error => Ok(()),
        (Err(refusal), _) => Err(format!("settings were refused: {}", refusal.name())),
        (Ok(_), _) => Err("settings were accepted".to_owned()),
    };
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let error = check(&case.settings, &case.ops, &case.expect).err()?;
            Some(format!("{} ({}): {error}", case.name, case.title))
        })
        .collect();
    report("cases", cases.len(), &failures);
}

#[test]
fn the_oracle_gives_the_stated_answer_to_every_scenario() {
    let scenarios = scenarios();
    assert!(scenarios.len() >= 50, "only {} scenarios found", scenarios.len());
    let check = |scenario: &crate::cases::Scenario| match Oracle::run(&scenario.settings, &scenario.ops) {
        Ok(found) if scenario.refused.is_none() => scenario.check(&found),
        Err(refusal) if scenario.refused.as_deref() == Some(refusal.name()) => Ok(()),
        Ok(_) => Err("settings were accepted".to_owned()),
        Err(refusal) => Err(format!("settings were refused: {}", refusal.name())),
    };
    let failures: Vec<String> = scenarios
        .iter()
        .filter_map(|scenario| {
            check(scenario).err().map(|error| format!("{} ({}): {error}", scenario.name, scenario.title))
        })
        .collect();
    report("scenarios", scenarios.len(), &failures);
}

#[test]
fn the_oracle_gives_what_other_engines_gave_on_real_streams() {
    let (goldens, mut streams) = (goldens(), BTreeMap::new());
    assert!(goldens.len() >= 8, "only {} golden cases found", goldens.len());
    let mut failures = Vec::new();
    for golden in &goldens {
        let found = Oracle::run(&golden.settings, &golden.ops(&mut streams)).unwrap();
        match same_as_golden(golden, &found, compare) {
            Ok(()) => {}
            Err(error) => failures.push(format!("{}: {error}", golden.name)),
        }
    }
    report("golden cases", goldens.len(), &failures);
}

/// Compares what a golden case knows.
///
/// # Errors
/// The first difference, in words.
pub(crate) fn same_as_golden(
    golden: &Golden,
    found: &Observed,
    compare: fn(&Observed, &Observed) -> Result<(), Difference>,
) -> Result<(), String> {
    let mut known = found.clone();
    known.emits.iter_mut().for_each(|emit| emit.pane = None);
    let expected = Observed {
        emits: golden.emits.clone(),
        late: golden.late.clone().unwrap_or_else(|| found.late.clone()),
        ..known.clone()
    };
    compare(&expected, &known).map_err(|difference| difference.to_string())?;
    if let (Some(expected), Some(state)) = (golden.state_rows, &found.state) {
        first_difference("rows in state", &[expected], &[state.len()], |a, b| a == b)
            .map_err(|difference| difference.to_string())?;
    }
    if golden.final_watermark.is_some() && golden.final_watermark != found.final_watermark {
        return Err(format!("final watermark: {:?}", found.final_watermark));
    }
    Ok(())
}
