//! An output that counts.

use floodmark::error::{Error, ErrorKind};
use floodmark::event::EventBatch;
use floodmark::operator::{Emit, LateEvent, Rejection, ResultBlock};

/// Counts results; every row is looked at.
#[derive(Debug, Default)]
pub(crate) struct Count {
    /// Result rows.
    pub(crate) results: u64,
    late: u64,
}

impl Emit for Count {
    type Error = Error;

    fn results(&mut self, _operator: usize, block: &mut dyn ResultBlock) -> Result<(), Error> {
        while let Some(row) = block.next_row() {
            std::hint::black_box(row.values);
            self.results += 1;
        }
        Ok(())
    }

    fn late(&mut self, _operator: usize, _event: LateEvent<'_>) -> Result<(), Error> {
        self.late += 1;
        Ok(())
    }

    fn rejected(&mut self, _batch: &EventBatch, _index: usize, rejection: Rejection) -> Result<(), Error> {
        let message = format!("no event of this stream is to be rejected: {}", rejection.name());
        Err(Error::new(ErrorKind::Bug, message))
    }
}
