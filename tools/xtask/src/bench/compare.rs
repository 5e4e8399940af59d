//! Two lists of figures next to each other. Pure: no file, no process.

use super::figures::Figure;

/// By how much a figure may grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// Of times, which differ from run to run.
    pub(crate) time: f64,
    /// Of instructions, which hardly do.
    pub(crate) counted: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { time: 1.25, counted: 1.02 }
    }
}

/// One figure of both.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    name: String,
    unit: String,
    old: Option<f64>,
    new: Option<f64>,
    bound: f64,
}

impl Row {
    /// How much of the old figure the new one is.
    fn ratio(&self) -> Option<f64> {
        self.old.zip(self.new).map(|(old, new)| new / old.max(f64::MIN_POSITIVE))
    }

    /// True when it is worse by more than its bound. A figure that one side lacks is not.
    pub(crate) fn is_worse(&self) -> bool {
        self.ratio().is_some_and(|ratio| ratio > self.bound)
    }
}

/// Figures in the order of the new list; those that it lacks come last.
pub(crate) fn rows(old: &[Figure], new: &[Figure], bounds: Bounds) -> Vec<Row> {
    let same = |a: &Figure, b: &Figure| a.name == b.name && a.unit == b.unit;
    let row = |figure: &Figure, old: Option<f64>, new: Option<f64>| Row {
        name: figure.name.clone(),
        unit: figure.unit.clone(),
        old,
        new,
        bound: if figure.unit.starts_with("instructions") { bounds.counted } else { bounds.time },
    };
    let both = new.iter().map(|figure| {
        let known = old.iter().find(|known| same(known, figure)).map(|known| known.least);
        row(figure, known, Some(figure.least))
    });
    let gone = old.iter().filter(|known| !new.iter().any(|figure| same(known, figure)));
    both.chain(gone.map(|known| row(known, Some(known.least), None))).collect()
}

/// The table of a comparison; `names` are those of the two commits.
pub(crate) fn table(rows: &[Row], names: [&str; 2]) -> String {
    let mut table = format!(
        "  {:24} {:20} {:>12} {:>12} {:>7} {:>7}\n",
        "figure", "unit", names[0], names[1], "ratio", "bound"
    );
    let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.1}"));
    for row in rows {
        let ratio = row.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
        let verdict = if row.is_worse() { "  WORSE" } else { "" };
        table += &format!(
            "  {:24} {:20} {:>12} {:>12} {ratio:>7} {:>7.2}{verdict}\n",
            row.name,
            row.unit,
            number(row.old),
            number(row.new),
            row.bound
        );
    }
    match rows.iter().filter(|row| row.is_worse()).count() {
        0 => table + "  no figure is worse by more than its bound",
        worse => table + &format!("  {worse} worse by more than the bound"),
    }
}

/// The table of one run.
pub(crate) fn listed(figures: &[Figure]) -> String {
    let head = format!("  {:24} {:20} {:>12} {:>12}", "figure", "unit", "median", "least");
    let lines = figures.iter().map(|figure| {
        let Figure { name, unit, median, least, .. } = figure;
        format!("\n  {name:24} {unit:20} {median:>12.1} {least:>12.1}")
    });
    head + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, unit: &str, least: f64) -> Figure {
        Figure { name: name.to_owned(), unit: unit.to_owned(), median: least, least, runs: 5 }
    }

    #[test]
    fn a_figure_is_worse_only_beyond_the_bound_of_its_kind() {
        let old = [
            figure("fire", "ns/row", 100.0),
            figure("fire", "instructions/row", 1_000.0),
            figure("gone", "ns/row", 1.0),
        ];
        let new = |time, counted| {
            [
                figure("fire", "ns/row", time),
                figure("fire", "instructions/row", counted),
                figure("fresh", "ns/row", 9e9),
            ]
        };
        let worse = |time, counted| {
            let rows = rows(&old, &new(time, counted), Bounds::default());
            rows.iter().map(Row::is_worse).collect::<Vec<_>>()
        };
        assert_eq!(worse(125.0, 1_020.0), [false; 4]);
        assert_eq!(worse(125.1, 1_020.0), [true, false, false, false]);
        assert_eq!(worse(50.0, 1_021.0), [false, true, false, false]);
    }

    #[test]
    fn the_table_lines_up_and_names_what_is_worse() {
        let rows = rows(
            &[figure("fire", "ns/row", 100.0), figure("gone", "ns/row", 2.0)],
            &[figure("fire", "ns/row", 200.0)],
            Bounds::default(),
        );
        let table = table(&rows, ["aaaaaaaaaa", "bbbbbbbbbb"]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0].len(), lines[1].trim_end_matches("  WORSE").len(), "{table}");
        assert!(lines[1].contains("100.0        200.0   2.000    1.25  WORSE"), "{table}");
        assert!(lines[2].contains("2.0            -       -"), "{table}");
        assert_eq!(lines[3], "  1 worse by more than the bound");
    }
}
