//! What all benchmarks that feed a store themselves have in common: S1's aggregates and its columns.

use floodmark::aggregate::{AggregateSpec, Function, InputType};
use floodmark::event::{EventBatch, PartitionId, ValueColumn};

/// Count, sum, min and max of the one value.
pub(super) fn aggregates() -> Vec<AggregateSpec> {
    let over = |name, function| AggregateSpec::over(name, function, "value", InputType::Int, 0);
    vec![
        AggregateSpec::count("count"),
        over("sum", Function::Sum),
        over("min", Function::Min),
        over("max", Function::Max),
    ]
}

/// An empty batch of one key and one value.
pub(super) fn batch(partition: PartitionId) -> EventBatch {
    EventBatch::with_columns(partition, 1, vec![ValueColumn::int()])
}
