//! What a pipeline needs of each record: the time, the distinct keys, the distinct values, the conditions.
//!
//! Pure: from the pipeline file to a list of columns, and for each window which of them it reads.

use crate::event_time::Windows;
use crate::pipeline::config::{Filter, InputType, KeyField, PipelineConfig, TimeConfig};

/// What is taken from each record.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsePlan {
    /// The event time.
    pub time: TimeConfig,
    /// Distinct keys, one column each.
    pub keys: Vec<Vec<KeyField>>,
    /// Distinct input fields, one column each.
    pub values: Vec<ValueField>,
    /// Conditions that a row must meet.
    pub filters: Vec<Filter>,
    /// The windows that every time must fit into.
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

impl ParsePlan {
    /// The plan of a pipeline, and what each of its windows reads, in their order.
    #[must_use]
    pub fn of(config: &PipelineConfig) -> (Self, Vec<WindowColumns>) {
        let source = &config.source;
        let mut plan = Self {
            time: source.time.clone(),
            keys: Vec::new(),
            values: Vec::new(),
            filters: source.filters.clone(),
            windows: config.windows.iter().map(|window| window.windows.clone()).collect(),
        };
        // Typed fields first: a count of the same field then shares the column.
        let aggregates = || config.windows.iter().flat_map(|window| &window.aggregates);
        let typed = aggregates().filter(|aggregate| aggregate.input.is_some());
        let untyped = aggregates().filter(|aggregate| aggregate.input.is_none());
        for aggregate in typed.chain(untyped) {
            if let Some(field) = &aggregate.field
                && plan.value_index(field).is_none()
            {
                plan.values.push(ValueField { field: field.clone(), input: aggregate.input });
            }
        }
        let mut windows = Vec::with_capacity(config.windows.len());
        for window in &config.windows {
            let key = plan.keys.iter().position(|key| *key == window.key).unwrap_or(plan.keys.len());
            if key == plan.keys.len() {
                plan.keys.push(window.key.clone());
            }
            let column = |field: &Option<String>| field.as_ref().and_then(|field| plan.value_index(field));
            let values = window.aggregates.iter().map(|aggregate| column(&aggregate.field)).collect();
            windows.push(WindowColumns { key, values });
        }
        (plan, windows)
    }

    fn value_index(&self, field: &str) -> Option<usize> {
        self.values.iter().position(|value| value.field == field)
    }

    /// The distinct fields that the plan looks at.
    pub(super) fn fields(&self) -> Vec<String> {
        let mut fields = vec![self.time.field.clone()];
        let keys = self.keys.iter().flatten().map(|key| &key.field);
        let values = self.values.iter().map(|value| &value.field);
        let filters = self.filters.iter().map(|filter| &filter.field);
        for field in keys.chain(values).chain(filters) {
            if !fields.contains(field) {
                fields.push(field.clone());
            }
        }
        fields
    }
}
