//! Verdicts on changes, one by one: what a table of docs/EVOLUTION.md says, from plain data.

use std::collections::BTreeMap;

use super::*;
use crate::aggregate::{AggregateSpec, Function, InputType, STATE_VERSION};
use crate::checkpoint::{LineageId, PartitionState, Position, SourceIdentity};
use crate::event_time::{EventTime, Sliding, Span, Tumbling, Windows};
use crate::operator::{LatenessSketch, Mode, Trigger, WindowOperator};
use crate::store::family;

fn span(millis: i64) -> Span {
    Span::from_millis(millis).unwrap()
}

fn over(name: &str, function: Function, field: &str) -> AggregateSpec {
    AggregateSpec::over(name, function, field, InputType::Int, 0)
}

fn numbered(mut spec: OperatorSpec) -> OperatorSpec {
    shape::number_columns(&mut spec.aggregates);
    spec
}

fn spec() -> OperatorSpec {
    let hour = Tumbling::new(span(3_600_000), 0).unwrap();
    let aggregates = vec![
        AggregateSpec::count("rows"),
        over("low", Function::Min, "amount"),
        over("high", Function::Max, "amount"),
    ];
    numbered(OperatorSpec::new("hourly", hour, &["customer", "shop"], aggregates))
}

fn manifest(specs: &[OperatorSpec]) -> Manifest {
    let watermark = Watermark::At(EventTime::from_millis(3_600_000 * 10));
    let state = |spec: &OperatorSpec| OperatorState {
        name: spec.name.clone(),
        family: family(spec).column_family(),
        definition: serde_json::to_string(spec).unwrap(),
        fingerprint: WindowOperator::new(0, spec.clone()).layout().fingerprint(),
        state_version: STATE_VERSION,
        allowed_lateness: spec.allowed_lateness,
        watermark,
        horizon: watermark,
        open_panes: None,
    };
    Manifest {
        pipeline: "p".to_owned(),
        lineage: LineageId([1; 16]),
        generation: 1,
        epoch: 4,
        parent: None,
        created_by: "0.1.0".to_owned(),
        created_at_ms: 0,
        sources: Vec::new(),
        partitions: vec![PartitionState {
            name: "a".to_owned(),
            source: String::new(),
            position: Position::default(),
            identity: SourceIdentity::default(),
            finished: false,
            max_time: Some(EventTime::from_millis(3_600_000 * 10 + 5)),
            watermark,
            idle: false,
            lateness: LatenessSketch::default(),
        }],
        watermark,
        batch_watermark: Watermark::None,
        horizon: watermark,
        operators: specs.iter().map(state).collect(),
        files: Vec::new(),
        staged: Vec::new(),
        counters: BTreeMap::new(),
    }
}

fn judged(old: &OperatorSpec, new: OperatorSpec, rules: &Rules) -> OperatorChange {
    let mut windows = [numbered(new)];
    plan(&manifest(std::slice::from_ref(old)), &mut windows, &[], rules).report.operators.swap_remove(0)
}

/// The verdict on a change of the definition, nothing being declared.
fn verdict(old: &OperatorSpec, change: impl Fn(&mut OperatorSpec)) -> Verdict {
    let mut new = old.clone();
    change(&mut new);
    judged(old, new, &Rules::default()).verdict
}

#[test]
fn a_definition_that_has_not_changed_is_the_same() {
    assert_eq!(verdict(&spec(), |_| {}), Verdict::Same);
}

#[test]
fn what_panes_are_kept_by_cannot_change() {
    let old = spec();
    let refused = |change: &dyn Fn(&mut OperatorSpec)| {
        assert_eq!(verdict(&old, change), Verdict::Refused);
    };
    refused(&|spec| spec.windows = Tumbling::new(span(7_200_000), 0).unwrap().into());
    refused(&|spec| spec.windows = Tumbling::new(span(3_600_000), 5).unwrap().into());
    refused(&|spec| spec.windows = Windows::session(span(3_600_000)).unwrap());
    refused(&|spec| spec.key.swap(0, 1));
    refused(&|spec| spec.key.truncate(1));
    refused(&|spec| spec.key[0] = "buyer".to_owned());
    refused(&|spec| spec.mode = Mode::Update);
    refused(&|spec| spec.trigger = Trigger::Count(3));
    refused(&|spec| spec.time = crate::operator::TimeDomain::Processing);
    refused(&|spec| spec.advance = crate::operator::Advance::Batch);
    refused(&|spec| spec.accumulation = crate::operator::Accumulation::Discarding);
    refused(&|spec| spec.input = Some("other".to_owned()));
}

#[test]
fn swapping_min_and_max_of_one_type_is_refused_and_swapping_their_places_is_not() {
    let old = spec();
    let functions = |spec: &mut OperatorSpec| {
        spec.aggregates[1].function = Function::Max;
        spec.aggregates[2].function = Function::Min;
    };
    assert_eq!(verdict(&old, functions), Verdict::Refused);
    let names = |spec: &mut OperatorSpec| {
        spec.aggregates[1].name = "high".to_owned();
        spec.aggregates[2].name = "low".to_owned();
    };
    assert_eq!(verdict(&old, names), Verdict::Refused);
    assert_eq!(verdict(&old, |spec| spec.aggregates.swap(1, 2)), Verdict::Compatible);
}

#[test]
fn aggregates_are_added_freely_and_dropped_only_when_that_is_allowed() {
    let old = spec();
    let added = |spec: &mut OperatorSpec| spec.aggregates.push(over("sum", Function::Sum, "amount"));
    assert_eq!(verdict(&old, added), Verdict::Compatible);
    let mut new = old.clone();
    new.aggregates.remove(1);
    assert_eq!(judged(&old, new.clone(), &Rules::default()).verdict, Verdict::Refused);
    let allowed = Rules { allow_dropped: true, ..Rules::default() };
    assert_eq!(judged(&old, new, &allowed).verdict, Verdict::Compatible);
}

#[test]
fn an_added_aggregate_says_which_windows_it_covers_in_part() {
    let old = spec();
    let mut new = old.clone();
    new.aggregates.push(over("sum", Function::Sum, "amount"));
    let judged = judged(&old, new, &Rules::default());
    let effect = &judged.changes[0].effect;
    assert!(effect.contains("end after 1970-01-01T10:00:00Z and by 1970-01-01T11:00:00Z"), "{effect}");
}

#[test]
fn a_change_of_type_or_parameter_is_refused_except_for_what_is_only_counted() {
    let mut old = spec();
    old.aggregates.push(over("present", Function::Count, "note"));
    old.aggregates.push(over("top", Function::TopK { k: 3, limit: 10 }, "amount"));
    let old = numbered(old);
    let kind =
        |spec: &mut OperatorSpec, at: usize, kind| spec.aggregates[at].input.as_mut().unwrap().kind = kind;
    let amounts = |spec: &mut OperatorSpec| {
        for at in [1, 2, 4] {
            kind(spec, at, InputType::Decimal(2));
        }
    };
    assert_eq!(verdict(&old, amounts), Verdict::Refused);
    assert_eq!(verdict(&old, |spec| kind(spec, 3, InputType::Text)), Verdict::Compatible);
    let limit = |spec: &mut OperatorSpec| spec.aggregates[4].function = Function::TopK { k: 3, limit: 11 };
    assert_eq!(verdict(&old, limit), Verdict::Refused);
}

#[test]
fn names_that_are_declared_to_have_changed_are_mapped() {
    let old = spec();
    let mut new = old.clone();
    new.name = "per_hour".to_owned();
    new.key[0] = "buyer".to_owned();
    new.aggregates[1].name = "least".to_owned();
    for at in [1, 2] {
        new.aggregates[at].input.as_mut().unwrap().field = "cents".to_owned();
    }
    let renames = Renames {
        was: Some("hourly".to_owned()),
        aggregates: BTreeMap::from([("least".to_owned(), "low".to_owned())]),
        fields: BTreeMap::from([
            ("buyer".to_owned(), "customer".to_owned()),
            ("cents".to_owned(), "amount".to_owned()),
        ]),
    };
    let rules = Rules { renames: BTreeMap::from([("per_hour".to_owned(), renames)]), ..Rules::default() };
    let judged_new = judged(&old, new.clone(), &rules);
    assert_eq!(judged_new.verdict, Verdict::Compatible, "{judged_new}");
    assert_eq!(judged_new.was.as_deref(), Some("hourly"));
    // Once done, what was declared does nothing.
    assert_eq!(judged(&new, new.clone(), &rules).verdict, Verdict::Same);
    assert_eq!(
        judged(&old, new, &Rules::default()).verdict,
        Verdict::Compatible,
        "without it the window is new"
    );
}

#[test]
fn a_window_that_is_gone_is_refused_unless_it_may_be_dropped_and_a_new_one_is_not() {
    let (old, mut other) = (spec(), spec());
    other.name = "other".to_owned();
    let stored = manifest(&[old.clone(), other.clone()]);
    let gone = |rules: &Rules| plan(&stored, &mut [old.clone()], &[], rules);
    assert_eq!(gone(&Rules::default()).report.verdict, Verdict::Refused);
    let dropped = gone(&Rules { allow_dropped: true, ..Rules::default() });
    assert_eq!((dropped.report.verdict, dropped.gone.as_slice()), (Verdict::Compatible, &[1][..]));
    let added =
        plan(&manifest(std::slice::from_ref(&old)), &mut [old.clone(), other], &[], &Rules::default());
    assert_eq!(added.report.verdict, Verdict::Compatible);
    assert!(added.report.to_string().contains("windows that end by then are not produced"));
}

#[test]
fn lateness_may_change_where_panes_are_kept_alike_before_and_after() {
    let old = spec();
    assert_eq!(verdict(&old, |spec| spec.allowed_lateness = span(60_000)), Verdict::Compatible);
    let mut late = spec();
    late.allowed_lateness = span(60_000);
    assert_eq!(verdict(&late, |spec| spec.allowed_lateness = Span::ZERO), Verdict::Compatible);
    late.trigger = Trigger::Interval(span(1_000));
    assert_eq!(verdict(&late, |spec| spec.allowed_lateness = Span::ZERO), Verdict::Refused);
    let mut slices = spec();
    slices.windows = Sliding::new(span(3_600_000), span(60_000), 0).unwrap().into();
    assert_eq!(verdict(&slices, |spec| spec.allowed_lateness = span(60_000)), Verdict::Refused);
    assert_eq!(verdict(&old, |spec| spec.trigger = Trigger::Early(span(60_000))), Verdict::Compatible);
}

#[test]
fn state_of_another_version_or_with_another_fingerprint_is_refused() {
    let old = spec();
    let version = |state: &mut OperatorState| state.state_version += 1;
    let fingerprint = |state: &mut OperatorState| state.fingerprint ^= 1;
    for change in [&version as &dyn Fn(&mut OperatorState), &fingerprint] {
        let mut stored = manifest(std::slice::from_ref(&old));
        change(&mut stored.operators[0]);
        assert_eq!(
            plan(&stored, &mut [old.clone()], &[], &Rules::default()).report.verdict,
            Verdict::Refused
        );
    }
}

#[test]
fn old_and_new_shape_stand_side_by_side_and_cannot_move_the_cursor() {
    let mut old = spec();
    old.aggregates[0].name = "a\x1b[2J".to_owned();
    let text = judged(&old, spec(), &Rules::default()).to_string();
    assert!(text.contains("stored") && text.contains("asked"), "{text}");
    assert!(text.contains("aggregate high") && !text.contains('\x1b'), "{text}");
}
