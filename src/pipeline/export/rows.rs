//! The columns of exported panes, and a walk over the cells of one.

use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Window};
use crate::inspect::{ListedPane, StreamedOperator};
use crate::pipeline::sink::{Cells, Column, ColumnType, walk_values};

/// Columns that every exported pane has behind its key.
const OWN: [(&str, ColumnType, bool); 7] = [
    ("window_start", ColumnType::Time, true),
    ("window_end", ColumnType::Time, true),
    ("pane_status", ColumnType::Text, false),
    ("pane_events", ColumnType::Int, true),
    ("pane_emissions", ColumnType::Int, true),
    ("pane_bytes", ColumnType::Int, false),
    ("pane_problem", ColumnType::Text, true),
];

/// The rows of one window.
#[derive(Debug)]
pub(super) struct PaneRows {
    window: String,
    keys: usize,
    types: Vec<ColumnType>,
    columns: Vec<Column>,
}

impl PaneRows {
    pub(super) fn of(operator: &StreamedOperator<'_>) -> Result<Self> {
        let spec = operator.spec;
        let types: Vec<ColumnType> = spec.aggregates.iter().map(ColumnType::of_aggregate).collect();
        let column = |name: &str, kind, nullable| Column { name: name.to_owned(), kind, nullable };
        let mut columns: Vec<Column> =
            spec.key.iter().map(|field| column(field, ColumnType::Text, false)).collect();
        columns.extend(OWN.map(|(name, kind, nullable)| column(name, kind, nullable)));
        let values = spec.aggregates.iter().zip(&types);
        columns.extend(values.map(|(aggregate, &kind)| column(&aggregate.name, kind, true)));
        let twice = columns
            .iter()
            .enumerate()
            .find(|(at, column)| columns.iter().take(*at).any(|earlier| earlier.name == column.name));
        if let Some((_, column)) = twice {
            let message =
                format!("two columns would have one name: window={} column={}", spec.name, column.name);
            return Err(Error::new(ErrorKind::Invalid, message).with_remedy(
                "export the other windows by name (--window), or rename the field or aggregate",
            ));
        }
        Ok(Self { window: spec.name.clone(), keys: spec.key.len(), types, columns })
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Hands the cells of a pane to `cells`, in the order of the columns.
    pub(super) fn walk(&self, pane: &ListedPane, cells: &mut impl Cells) -> Result<()> {
        let components = pane.key.0.iter().map(Vec::as_slice);
        // Bytes that are no key of so many fields are one by themselves; the others are empty then.
        components.chain(std::iter::repeat(&[][..])).take(self.keys).for_each(|part| cells.bytes(part));
        let window = Window { start: pane.start, end: pane.end };
        for bound in [window.start, window.end] {
            match window == Window::ALL {
                true => cells.null(),
                false => cells.time(bound),
            }
        }
        cells.bytes(pane.status.name().as_bytes());
        number(cells, pane.events);
        number(cells, pane.emissions.map(u64::from));
        number(cells, Some(pane.bytes));
        match &pane.problem {
            Some(problem) => cells.bytes(problem.as_bytes()),
            None => cells.null(),
        }
        if pane.problem.is_some() {
            self.types.iter().for_each(|_| cells.null());
            return Ok(());
        }
        let values: Vec<_> = pane.aggregates.0.iter().map(|(_, value)| value.clone()).collect();
        walk_values(&self.window, &values, &self.types, cells).map_err(|error| {
            Error::new(ErrorKind::Damaged, format!("a pane does not fit its columns: key={}", pane.key))
                .with_remedy("run `floodmark inspect verify` on the checkpoint")
                .with_source(error)
        })
    }
}

fn number(cells: &mut impl Cells, value: Option<u64>) {
    match value.map(i64::try_from) {
        Some(Ok(value)) => cells.int(value),
        Some(Err(_)) => cells.int(i64::MAX),
        None => cells.null(),
    }
}

/// A time as text formats have it.
pub(super) fn moment(time: EventTime) -> String {
    time.to_string()
}
