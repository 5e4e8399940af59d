//! Cells gathered by column until they are a row group.

use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};

use super::Tray;
use crate::aggregate::Value;
use crate::event_time::EventTime;
use crate::pipeline::sink::columns::{Cells, Column, ColumnType};
use crate::pipeline::sink::row::{append_json_bytes, append_value};

/// The columns of the row group to come.
pub(super) struct Gathered {
    columns: Vec<Gathering>,
    rows: usize,
    bytes: usize,
}

/// The values of one column, nulls left out, and where the nulls are.
struct Gathering {
    values: Values,
    // 1 where there is a value; unused in columns that are never null.
    present: Vec<i16>,
    nullable: bool,
}

enum Values {
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
}

impl Gathered {
    pub(super) fn new(columns: &[Column]) -> Self {
        let gathering = |column: &Column| Gathering {
            values: match column.kind {
                ColumnType::Text | ColumnType::Json => Values::Bytes(Vec::new()),
                ColumnType::Whole | ColumnType::Decimal(_) => Values::Fixed(Vec::new()),
                ColumnType::Int | ColumnType::Time => Values::Ints(Vec::new()),
                ColumnType::Float => Values::Floats(Vec::new()),
            },
            present: Vec::new(),
            nullable: column.nullable,
        };
        Self { columns: columns.iter().map(gathering).collect(), rows: 0, bytes: 0 }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the cells of one more row.
    pub(super) fn next_row(&mut self) -> NextRow<'_> {
        NextRow { gathered: self, column: 0 }
    }

    /// Writes all rows as a row group, and is empty afterwards.
    pub(super) fn write(&mut self, file: &mut SerializedFileWriter<Tray>) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        for gathering in &mut self.columns {
            let Some(mut column) = group.next_column()? else {
                return Err(ParquetError::General("the schema has fewer columns than the rows".to_owned()));
            };
            gathering.write(&mut column)?;
            column.close()?;
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl Gathering {
    fn write(&mut self, column: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let present = self.nullable.then_some(self.present.as_slice());
        match &mut self.values {
            Values::Bytes(values) => write::<ByteArrayType>(column, values, present)?,
            Values::Fixed(values) => write::<FixedLenByteArrayType>(column, values, present)?,
            Values::Ints(values) => write::<Int64Type>(column, values, present)?,
            Values::Floats(values) => write::<DoubleType>(column, values, present)?,
        }
        self.present.clear();
        Ok(())
    }
}

fn write<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    column.typed::<T>().write_batch(values, present, None)?;
    values.clear();
    Ok(())
}

/// The row that is being gathered; it counts once all its cells are there.
pub(in crate::pipeline) struct NextRow<'a> {
    gathered: &'a mut Gathered,
    column: usize,
}

impl NextRow<'_> {
    /// Puts a value, or a null, into the next column. Which kinds go into which columns was checked by the walk.
    fn put(&mut self, bytes: usize, value: impl FnOnce(&mut Values) -> bool) {
        let Gathered { columns, rows, bytes: total } = &mut *self.gathered;
        let last = columns.len().saturating_sub(1);
        if let Some(column) = columns.get_mut(self.column) {
            let present = value(&mut column.values);
            column.present.push(i16::from(present));
        }
        *total += bytes;
        *rows += usize::from(self.column == last);
        self.column += 1;
    }

    fn put_bytes(&mut self, bytes: Vec<u8>) {
        self.put(bytes.len() + size_of::<ByteArray>(), |values| match values {
            Values::Bytes(values) => {
                values.push(ByteArray::from(bytes));
                true
            }
            _ => false,
        });
    }

    fn put_int(&mut self, value: i64) {
        self.put(size_of::<i64>(), |values| match values {
            Values::Ints(values) => {
                values.push(value);
                true
            }
            _ => false,
        });
    }
}

impl Cells for NextRow<'_> {
    fn null(&mut self) {
        self.put(size_of::<i16>(), |_| false);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if std::str::from_utf8(bytes).is_ok() {
            return self.put_bytes(bytes.to_vec());
        }
        // What a text column cannot hold is kept as JSON has it, so that nothing is lost.
        let mut text = Vec::new();
        append_json_bytes(&mut text, bytes);
        self.put_bytes(text);
    }

    fn int(&mut self, value: i64) {
        self.put_int(value);
    }

    fn whole(&mut self, unscaled: i128, _: u8) {
        let digits = unscaled.to_be_bytes().to_vec();
        self.put(digits.len() + size_of::<FixedLenByteArray>(), |values| match values {
            Values::Fixed(values) => {
                values.push(FixedLenByteArray::from(digits));
                true
            }
            _ => false,
        });
    }

    fn float(&mut self, value: f64) {
        self.put(size_of::<f64>(), |values| match values {
            Values::Floats(values) => {
                values.push(value);
                true
            }
            _ => false,
        });
    }

    fn time(&mut self, time: EventTime) {
        self.put_int(time.as_millis());
    }

    fn json(&mut self, value: &Value) {
        let mut text = Vec::new();
        append_value(&mut text, value);
        self.put_bytes(text);
    }
}
