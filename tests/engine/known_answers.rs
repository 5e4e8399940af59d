//! Cases and scenarios through the engine: as they stand, in any division into batches, with panes moved out of
//! memory, and with the process dying after each operation.

use crate::cases::{Case, Scenario, compare, compare_unplaced, conformance, deep, report, scenarios};
use crate::drivers::{Plan, Step, through_operator, through_store};
use crate::oracle::{Observed, Op, Settings};

/// A way into the engine.
type Way = fn(&Settings, &[Op], &Plan) -> Result<Observed, String>;

fn plan(batches: &[usize], after: &[Step]) -> Plan {
    Plan { batches: batches.to_vec(), after: after.to_vec(), step_rows: None }
}

fn plans_of_the_operator() -> Vec<Plan> {
    use Step::{Checkpoint, CheckpointAndKill, Kill, Nothing, SpillAll, SpillDirty, SpillLargest};
    vec![
        plan(&[], &[]),
        plan(&[usize::MAX], &[]),
        plan(&[2, 1], &[]),
        plan(&[], &[SpillDirty]),
        plan(&[], &[SpillAll]),
        plan(&[], &[CheckpointAndKill]),
        plan(&[], &[Kill]),
        plan(&[], &[SpillLargest, Nothing, SpillDirty]),
        plan(&[], &[Nothing, Checkpoint, Kill]),
        plan(&[3], &[SpillAll, Checkpoint, Nothing, Kill]),
    ]
}

fn plans_of_the_store() -> Vec<Plan> {
    use Step::{Checkpoint, CheckpointAndKill, Kill, Nothing};
    let mut plans = vec![plan(&[], &[]), plan(&[], &[CheckpointAndKill])];
    if deep() {
        plans.extend([
            plan(&[usize::MAX], &[]),
            plan(&[], &[Kill]),
            plan(&[3], &[Checkpoint, Nothing, Kill]),
        ]);
    }
    plans
}

/// Idle time-outs begin anew in a new process, which says nothing about how long the old one has waited.
fn fits(plan: &Plan, ops: &[Op]) -> bool {
    let timed = ops.iter().any(|op| matches!(op, Op::Tick { .. }));
    !timed || !plan.after.iter().any(|step| step.kills())
}

fn check_case(case: &Case, way: Way, plan: &Plan) -> Result<(), String> {
    match (way(&case.settings, &case.ops, plan), &case.expect) {
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

fn check_scenario(scenario: &Scenario, way: Way, plan: &Plan) -> Result<(), String> {
    match (way(&scenario.settings, &scenario.ops, plan), &scenario.refused) {
        (Err(_), Some(_)) => Ok(()),
        (Err(error), None) => Err(error),
        (Ok(_), Some(error)) => Err(format!("accepted in spite of {error}")),
        (Ok(found), None) => scenario.check(&found),
    }
}

fn check_cases(way: Way, plans: &[Plan]) {
    let cases = conformance();
    let failure = |case: &Case| {
        let mut fitting = plans.iter().filter(|plan| fits(plan, &case.ops));
        let (plan, error) = fitting.find_map(|plan| Some((plan, check_case(case, way, plan).err()?)))?;
        Some(format!("{} ({}) with {plan:?}: {error}", case.name, case.title))
    };
    let failures: Vec<String> = cases.iter().filter_map(failure).collect();
    report("cases", cases.len(), &failures);
}

fn check_scenarios(way: Way, plans: &[Plan], beyond: &[&str]) {
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| !beyond.iter().any(|name| scenario.name.starts_with(name)));
    let failure = |scenario: &Scenario| {
        let mut fitting = plans.iter().filter(|plan| fits(plan, &scenario.ops));
        let (plan, error) =
            fitting.find_map(|plan| Some((plan, check_scenario(scenario, way, plan).err()?)))?;
        Some(format!("{} ({}) with {plan:?}: {error}", scenario.name, scenario.title))
    };
    let failures: Vec<String> = scenarios.iter().filter_map(failure).collect();
    report("scenarios", scenarios.len(), &failures);
}

#[test]
fn every_conformance_case_gives_the_known_answer_through_an_operator() {
    check_cases(through_operator, &plans_of_the_operator());
}

#[test]
fn every_conformance_case_gives_the_known_answer_through_the_store() {
    check_cases(through_store, &plans_of_the_store());
}

/// Which times are believed and which events are repetitions is settled before an operator.
const BEYOND_AN_OPERATOR: [&str; 2] = ["b40", "b89"];

#[test]
fn every_scenario_gives_the_stated_answer_through_an_operator() {
    check_scenarios(through_operator, &plans_of_the_operator(), &BEYOND_AN_OPERATOR);
}

#[test]
fn every_scenario_gives_the_stated_answer_through_the_store() {
    check_scenarios(through_store, &plans_of_the_store(), &[]);
}
