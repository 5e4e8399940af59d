//! Cases and scenarios through the public store: as they stand, in any division into batches, and with the process
//! dying after each operation.

use crate::cases::{Case, Scenario, compare, compare_unplaced, conformance, drive, report, scenarios};
use crate::drivers::{Plan, StoreEngine};
use crate::oracle::{Observed, Op, Settings};

fn run(settings: &Settings, ops: &[Op], plan: &Plan) -> Result<Observed, String> {
    drive(Box::new(StoreEngine::new(settings, ops, plan.clone())?), ops)
}

/// True when idle time-outs play a part: how long a process was down says nothing about partitions, so that they
/// count anew.
fn is_timed(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op, Op::Tick { .. }))
}

fn plans() -> Vec<Plan> {
    let divided = |batches: &[usize]| Plan { batches: batches.to_vec(), after: vec![] };
    let dying = |after: &[(bool, bool)]| Plan { batches: vec![], after: after.to_vec() };
    vec![
        Plan::default(),
        divided(&[usize::MAX]),
        divided(&[2, 1]),
        dying(&[(true, true)]),
        dying(&[(false, true)]),
        dying(&[(false, false), (true, false), (false, true)]),
        Plan { batches: vec![3], after: vec![(true, false), (false, true)] },
    ]
}

fn check_case(case: &Case, plan: &Plan) -> Result<(), String> {
    match (run(&case.settings, &case.ops, plan), &case.expect) {
        (Err(_), Err(_)) => Ok(()),
        (Err(error), Ok(_)) => Err(error),
        (Ok(_), Err(error)) => Err(format!("accepted in spite of {error}")),
        (Ok(mut found), Ok(expected)) => {
            found.watermarks.clear();
            let difference = match plan.batches.is_empty() {
                true => compare(expected, &found),
                false => compare_unplaced(expected, &found),
            };
            difference.map_err(|difference| difference.to_string())
        }
    }
}

fn check_scenario(scenario: &Scenario, plan: &Plan) -> Result<(), String> {
    match (run(&scenario.settings, &scenario.ops, plan), &scenario.refused) {
        (Err(_), Some(_)) => Ok(()),
        (Err(error), None) => Err(error),
        (Ok(_), Some(error)) => Err(format!("accepted in spite of {error}")),
        (Ok(found), None) => scenario.check(&found),
    }
}

#[test]
fn every_conformance_case_gives_the_known_answer_through_the_store() {
    let cases = conformance();
    let mut failures = Vec::new();
    for case in &cases {
        for plan in plans() {
            if is_timed(&case.ops) && plan.after.iter().any(|(_, kill)| *kill) {
                continue;
            }
            if let Err(error) = check_case(case, &plan) {
                failures.push(format!("{} ({}) with {plan:?}: {error}", case.name, case.title));
                break;
            }
        }
    }
    report("cases", cases.len(), &failures);
}

#[test]
fn every_scenario_gives_the_stated_answer_through_the_store() {
    let scenarios = scenarios();
    let mut failures = Vec::new();
    for scenario in &scenarios {
        for plan in plans() {
            if is_timed(&scenario.ops) && plan.after.iter().any(|(_, kill)| *kill) {
                continue;
            }
            if let Err(error) = check_scenario(scenario, &plan) {
                failures.push(format!("{} ({}) with {plan:?}: {error}", scenario.name, scenario.title));
                break;
            }
        }
    }
    report("scenarios", scenarios.len(), &failures);
}
