//! What a pipeline needs of each record of a source: the time, the distinct keys, the distinct values, the conditions.
//!
//! Pure: from the pipeline file to a list of columns, and for each window which of them it reads.

use crate::event_time::Windows;
use crate::pipeline::config::{
    Filter, InputType, JoinConfig, KeyField, KeyType, PipelineConfig, SelectedField, TimeBounds, TimeConfig,
    TimeFormat, WatermarkStrategy, WindowConfig,
};

/// What is taken from each record.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsePlan {
    /// The event time.
    pub time: TimeConfig,
    /// Distinct keys, one column each.
    pub keys: Vec<Vec<KeyField>>,
    /// Distinct input fields, one column each.
    pub values: Vec<ValueField>,
    /// For each of the keys, whether a window, a join or deduplication reads it of this source.
    pub reads_key: Vec<bool>,
    /// For each of the values, whether a window or a join reads it of this source.
    pub reads_value: Vec<bool>,
    /// Field of the watermark, where the source is punctuated.
    pub punctuation: Option<String>,
    /// Conditions that a row must meet.
    pub filters: Vec<Filter>,
    /// The windows of this source, which every time must fit into.
    pub windows: Vec<Windows>,
}

/// An input field that aggregates read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueField {
    /// Its name.
    pub field: String,
    /// Its type; `None` when only its presence counts: the column then holds 1 for every value that is not null.
    pub input: Option<InputType>,
}

/// The columns that one window reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowColumns {
    /// Index of its key column.
    pub key: usize,
    /// For each aggregate the index of its value column; `None` for a count of rows.
    pub values: Vec<Option<usize>>,
}

/// The columns that joins and deduplication read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventColumns {
    /// For each join its left and its right side.
    pub joins: Vec<[WindowColumns; 2]>,
    /// For each source the index of the key column with its ids, where it is deduplicated.
    pub ids: Vec<Option<usize>>,
}

impl ParsePlan {
    /// A plan that takes the event time and nothing else, for programs that feed a store by themselves.
    #[must_use]
    pub fn new(time_field: &str, format: TimeFormat) -> Self {
        let time = TimeConfig { field: time_field.to_owned(), format, bounds: TimeBounds::default() };
        Self {
            time,
            keys: Vec::new(),
            values: Vec::new(),
            reads_key: Vec::new(),
            reads_value: Vec::new(),
            punctuation: None,
            filters: Vec::new(),
            windows: Vec::new(),
        }
    }

    /// Takes a key of these fields as text: the next key column of a batch.
    #[must_use]
    pub fn key(self, fields: &[&str]) -> Self {
        let part = |field: &&str| KeyField { field: (*field).to_owned(), key_type: KeyType::Text };
        self.typed_key(fields.iter().map(part).collect())
    }

    /// As [`ParsePlan::key`], with the types of the fields.
    #[must_use]
    pub fn typed_key(mut self, key: Vec<KeyField>) -> Self {
        self.keys.push(key);
        self.reads_key.push(true);
        self
    }

    /// Takes a value: the next value column of a batch.
    #[must_use]
    pub fn value(mut self, field: &str, input: InputType) -> Self {
        self.values.push(ValueField { field: field.to_owned(), input: Some(input) });
        self.reads_value.push(true);
        self
    }

    /// Passes over rows that fail this condition, and any other.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    /// What the joins of a pipeline read, and the deduplication of its sources.
    #[must_use]
    pub fn of_events(config: &PipelineConfig) -> EventColumns {
        columns(config).events
    }

    /// The plans of a pipeline's sources, in their order, and what each of its windows reads, in theirs. Columns have
    /// the same index in all sources; one that no window reads of a source stays empty there.
    #[must_use]
    pub fn of(config: &PipelineConfig) -> (Vec<Self>, Vec<WindowColumns>) {
        let Columns { keys, values, windows, events } = columns(config);
        let plans = config.sources.iter().zip(&events.ids).map(|(source, id)| {
            let reads = |window: &WindowConfig| {
                window.input.is_none()
                    && window.sources.as_ref().is_none_or(|names| names.contains(&source.name))
            };
            let mut plan = Self {
                time: source.time.clone(),
                reads_key: vec![false; keys.len()],
                reads_value: vec![false; values.len()],
                keys: keys.clone(),
                values: values.clone(),
                punctuation: match &source.watermark.strategy {
                    WatermarkStrategy::Punctuated { field } => Some(field.clone()),
                    _ => None,
                },
                filters: source.filters.clone(),
                windows: config
                    .windows
                    .iter()
                    .filter(|window| reads(window))
                    .map(|window| window.windows.clone())
                    .collect(),
            };
            let own = config.windows.iter().zip(&windows).filter(|(window, _)| reads(window));
            let own = own.map(|(_, columns)| columns);
            let joins = config.joins.iter().zip(&events.joins);
            let joins = joins.filter_map(|(join, sides)| side_of(join, &source.name, sides));
            for columns in own.chain(joins) {
                plan.reads_key[columns.key] = true;
                columns.values.iter().flatten().for_each(|&value| plan.reads_value[value] = true);
            }
            if let Some(id) = *id {
                plan.reads_key[id] = true;
            }
            plan
        });
        (plans.collect(), windows)
    }

    /// The distinct fields that the plan looks at.
    pub(super) fn fields(&self) -> Vec<String> {
        let mut fields = vec![self.time.field.clone()];
        let keys = self.keys.iter().zip(&self.reads_key).filter(|(_, read)| **read);
        let keys = keys.flat_map(|(key, _)| key).map(|part| &part.field);
        let values = self.values.iter().zip(&self.reads_value).filter(|(_, read)| **read);
        let values = values.map(|(value, _)| &value.field);
        let filters = self.filters.iter().map(|filter| &filter.field);
        for field in keys.chain(values).chain(filters).chain(&self.punctuation) {
            if !fields.contains(field) {
                fields.push(field.clone());
            }
        }
        fields
    }
}

/// The side of a join that a source is on.
fn side_of<'a>(join: &JoinConfig, source: &str, sides: &'a [WindowColumns; 2]) -> Option<&'a WindowColumns> {
    let [left, right] = sides;
    if join.left == source { Some(left) } else { (join.right == source).then_some(right) }
}

/// The distinct keys and values of a pipeline, and which of them is read by what.
struct Columns {
    keys: Vec<Vec<KeyField>>,
    values: Vec<ValueField>,
    windows: Vec<WindowColumns>,
    events: EventColumns,
}

fn columns(config: &PipelineConfig) -> Columns {
    let mut keys: Vec<Vec<KeyField>> = Vec::new();
    let mut values: Vec<ValueField> = Vec::new();
    let index_of = |values: &[ValueField], field: &str| values.iter().position(|value| value.field == field);
    // Typed fields first: a count of the same field then shares the column.
    let of_sources = || config.windows.iter().filter(|window| window.input.is_none());
    let aggregates = || of_sources().flat_map(|window| &window.aggregates);
    let typed = aggregates().filter(|aggregate| aggregate.input.is_some());
    let untyped = aggregates().filter(|aggregate| aggregate.input.is_none());
    let selected = config.joins.iter().flat_map(|join| join.left_fields.iter().chain(&join.right_fields));
    let selected = selected.map(|selected| (Some(&selected.field), Some(selected.input)));
    let typed = typed.map(|aggregate| (aggregate.field.as_ref(), aggregate.input));
    let untyped = untyped.map(|aggregate| (aggregate.field.as_ref(), aggregate.input));
    for (field, input) in typed.chain(selected).chain(untyped) {
        if let Some(field) = field
            && index_of(&values, field).is_none()
        {
            values.push(ValueField { field: field.clone(), input });
        }
    }
    let mut key_of = |key: &Vec<KeyField>| {
        keys.iter().position(|known| known == key).unwrap_or_else(|| {
            keys.push(key.clone());
            keys.len() - 1
        })
    };
    let mut windows = Vec::with_capacity(config.windows.len());
    for window in &config.windows {
        if window.input.is_some() {
            // Its columns are those of another window's results.
            let values = window.aggregates.iter().map(|aggregate| aggregate.field.as_ref().map(|_| 0));
            windows.push(WindowColumns { key: 0, values: values.collect() });
            continue;
        }
        let key = key_of(&window.key);
        let column = |field: &Option<String>| field.as_ref().and_then(|field| index_of(&values, field));
        let values = window.aggregates.iter().map(|aggregate| column(&aggregate.field)).collect();
        windows.push(WindowColumns { key, values });
    }
    let mut joins = Vec::with_capacity(config.joins.len());
    for join in &config.joins {
        let key = key_of(&join.key);
        let side = |fields: &[SelectedField]| WindowColumns {
            key,
            values: fields.iter().map(|selected| index_of(&values, &selected.field)).collect(),
        };
        joins.push([side(&join.left_fields), side(&join.right_fields)]);
    }
    let ids = config.sources.iter().map(|source| Some(key_of(&source.dedup.as_ref()?.by)));
    let events = EventColumns { joins, ids: ids.collect() };
    Columns { keys, values, windows, events }
}
