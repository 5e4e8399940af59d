//! Failures that people met with other systems, as small cases: `tests/data/scenarios/README.md`.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::compare::close;
use super::{json_files, parse, repository};
use crate::oracle::{Key, Num, Observed, Op, Row, Settings};

/// One scenario. What it does not mention is not compared.
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) settings: Settings,
    pub(crate) ops: Vec<Op>,
    /// The name of the refusal where settings must be refused.
    pub(crate) refused: Option<String>,
    expect: Json,
}

/// Every scenario, by name.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let files = json_files(&repository("tests/data/scenarios"));
    files
        .iter()
        .flat_map(|(name, json)| {
            variants(json).into_iter().enumerate().map(move |(index, json)| {
                scenario(if index == 0 { name.clone() } else { format!("{name} ({})", index + 1) }, &json)
            })
        })
        .collect()
}

/// The scenario of a file and its variants, each of which replaces some of its parts.
fn variants(file: &Json) -> Vec<Json> {
    let also = file["also"].as_array().into_iter().flatten();
    let variant = |changes: &Json| {
        let mut json = file.clone();
        for (part, value) in changes.as_object().unwrap() {
            json[part] = value.clone();
        }
        json
    };
    std::iter::once(file.clone()).chain(also.map(variant)).collect()
}

fn scenario(name: String, json: &Json) -> Scenario {
    let (settings, ops) = parse::run(json);
    let expect = json["expect"].clone();
    let refused = expect["error"].as_str().map(str::to_owned);
    Scenario { name, title: json["title"].as_str().unwrap().to_owned(), settings, ops, refused, expect }
}

/// Key, start, end, count and sum of a row, and min and max where the case knows them.
#[derive(Clone, Debug)]
struct Short {
    window: (Key, i64, i64, u64),
    sum: Option<Num>,
    extremes: Option<[Option<Num>; 2]>,
}

impl Short {
    fn expects(&self, found: &Self) -> bool {
        let extremes = self.extremes.is_none_or(|expected| {
            let found = found.extremes.expect("what was found has both");
            expected.into_iter().zip(found).all(|(a, b)| close(a, b) && sign(a) == sign(b))
        });
        self.window == found.window && close(self.sum, found.sum) && extremes
    }
}

/// The sign also of zero.
fn sign(number: Option<Num>) -> bool {
    number.is_some_and(|number| !number.as_f64().is_nan() && number.as_f64().is_sign_negative())
}

impl Scenario {
    /// # Errors
    /// The first difference, in words.
    pub(crate) fn check(&self, found: &Observed) -> Result<(), String> {
        let shown = |row: &Row| Short {
            window: (row.key.clone(), row.start, row.end, row.count),
            sum: row.sum,
            extremes: Some([row.min, row.max]),
        };
        let mut expected: Vec<Short> = self.list("rows").iter().map(short).collect();
        let mut shown: Vec<Short> = found.emits.iter().map(|emit| shown(&emit.row)).collect();
        for rows in [&mut expected, &mut shown] {
            rows.sort_by(|a, b| a.window.cmp(&b.window));
        }
        super::first_difference("rows", &expected, &shown, Short::expects)
            .map_err(|error| error.to_string())?;
        let late: Vec<Json> = found.late.iter().map(|late| late.ts.into()).collect();
        equal("late", self.list("late"), &late)?;
        self.check_figures(found)
    }

    fn check_figures(&self, found: &Observed) -> Result<(), String> {
        let mut reasons = BTreeMap::<&str, u64>::new();
        found.rejected.iter().for_each(|(_, reason)| *reasons.entry(reason).or_default() += 1);
        let rejected = serde_json::to_value(reasons).unwrap();
        let none = serde_json::json!({});
        equal("rejected", self.expect.get("rejected").unwrap_or(&none), &rejected)?;
        if let Some(watermarks) = self.expect.get("watermarks").filter(|_| !found.watermarks.is_empty()) {
            let of_events =
                self.ops.iter().zip(&found.watermarks).filter(|(op, _)| matches!(op, Op::Event(_)));
            let shown: Vec<Option<i64>> = of_events.map(|(_, watermark)| *watermark).collect();
            equal("watermarks after each event", watermarks, &serde_json::to_value(shown).unwrap())?;
        }
        if let Some(watermark) = self.expect.get("final_watermark") {
            equal("final watermark", watermark, &serde_json::to_value(found.final_watermark).unwrap())?;
        }
        match (self.expect.get("state_rows"), &found.state) {
            (Some(rows), Some(found)) => equal("rows in state", rows, &found.len().into()),
            _ => Ok(()),
        }
    }

    fn list(&self, name: &str) -> &Vec<Json> {
        self.expect[name].as_array().unwrap_or_else(|| panic!("{}: no {name}", self.name))
    }
}

fn short(json: &Json) -> Short {
    let number = |index: usize| json[index].as_i64().unwrap();
    Short {
        window: (parse::row_key(&json[0]), number(1), number(2), number(3) as u64),
        sum: parse::number(&json[4]),
        extremes: json.get(5).map(|_| [5, 6].map(|index| parse::number(&json[index]))),
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("{what}\n    expected {expected:?}\n    found    {found:?}"))
}
