//! A state database that holds nothing: everything stays in memory.

use floodmark::aggregate::RowMut;
use floodmark::error::{Error, ErrorKind};
use floodmark::event_time::EventTime;
use floodmark::operator::{Panes, RowBuffer};

/// Has no panes and takes none.
pub(crate) struct Nowhere;

impl Panes for Nowhere {
    type Error = Error;

    fn load(&mut self, _: usize, _: EventTime, _: &[u8], _: RowMut<'_>) -> Result<bool, Error> {
        Ok(false)
    }

    fn scan(
        &mut self,
        _: usize,
        _: EventTime,
        _: Option<&[u8]>,
        _: usize,
        _: &mut RowBuffer,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn put(&mut self, _: usize, _: EventTime, _: RowBuffer) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Bug, "a pane left memory"))
    }
}
