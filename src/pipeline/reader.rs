//! Reads and parses ahead on a thread of its own, a few blocks in front of the task.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::source::{Block, FileSource};
use crate::error::{Error, ErrorKind, Result};

/// Blocks read ahead. Each is about 256 KiB of text with its columns; a slow task stops the reader here.
pub(super) const BLOCKS_AHEAD: usize = 4;

/// What the reader has for the task.
pub(super) enum Next {
    /// A block.
    Block(Box<Block>),
    /// Nothing yet.
    Waiting,
    /// Everything was read.
    End,
}

/// Threads that help to parse, at most: with more, cutting blocks and taking them up is the slower part.
const HELPERS_MAX: usize = 3;

/// Cores that the process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The task's end of the reading thread.
pub(super) struct Reader {
    blocks: Receiver<Result<Block>>,
    spent: SyncSender<Block>,
    // Blocks that are read and were not taken; one more than fit when the thread waits for room.
    ahead: Arc<AtomicUsize>,
    // Until its end was seen.
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Starts the thread. It ends with the input, at the first error, or when this is dropped; one that waits for
    /// standard input is left behind.
    pub(super) fn start(source: FileSource) -> Result<Self> {
        let mut source = source.with_helpers((cores() - 1).min(HELPERS_MAX))?;
        let (sender, blocks) = sync_channel(BLOCKS_AHEAD);
        let (spent, recycled) = sync_channel::<Block>(BLOCKS_AHEAD + 1);
        let ahead = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ahead);
        let run = move || {
            loop {
                let block = match source.next_block(recycled.try_recv().ok()) {
                    Ok(None) => return,
                    Ok(Some(block)) => Ok(block),
                    Err(error) => Err(error),
                };
                let failed = block.is_err();
                counted.fetch_add(1, Ordering::Relaxed);
                if sender.send(block).is_err() || failed {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("floodmark-reader".to_owned()).spawn(run);
        let thread = spawned.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "cannot start the reading thread").with_source(error)
        })?;
        Ok(Self { blocks, spent, ahead, thread: Some(thread) })
    }

    /// The next block, waiting no longer than `patience`.
    ///
    /// # Errors
    /// Those of the source; `Bug` when the thread ended otherwise than with the input, whose rest nobody has seen then.
    pub(super) fn next(&mut self, patience: Duration) -> Result<Next> {
        match self.blocks.recv_timeout(patience) {
            Ok(block) => {
                self.ahead.fetch_sub(1, Ordering::Relaxed);
                Ok(Next::Block(Box::new(block?)))
            }
            Err(RecvTimeoutError::Timeout) => Ok(Next::Waiting),
            Err(RecvTimeoutError::Disconnected) => self.end(),
        }
    }

    /// Blocks that were read and wait for the task.
    pub(super) fn blocks_ahead(&self) -> usize {
        self.ahead.load(Ordering::Relaxed)
    }

    /// The thread has nothing more to say. If that is because it panicked, the input is not at its end: to take it for
    /// that would close every window.
    fn end(&mut self) -> Result<Next> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => {
                Err(Error::new(ErrorKind::Bug, "the reading thread panicked; its input is not at its end")
                    .with_remedy(
                        "report this; the last checkpoint is complete, and a new run goes on from it",
                    ))
            }
            _ => Ok(Next::End),
        }
    }

    /// Gives a block's memory back.
    pub(super) fn recycle(&self, block: Block) {
        // With the channel full, or the reader gone, the memory is simply freed.
        let _ = self.spent.try_send(block);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use super::*;
    use crate::clock::SystemClock;
    use crate::pipeline::config::PipelineConfig;
    use crate::pipeline::source::ParsePlan;

    /// A stream that breaks in a way that nobody thought of.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            panic!("a defect of the source")
        }
    }

    #[test]
    fn a_reading_thread_that_panics_is_not_taken_for_the_end_of_the_input() {
        let text = "name = \"p\"\n[source]\npath = \"-\"\nformat = \"jsonl\"\n\
                    time = { field = \"ts\", format = \"epoch_ms\" }\n[watermark]\ndelay = \"0s\"\n\
                    [state]\ndirectory = \"s\"\n[[window]]\nname = \"w\"\nkey = [\"k\"]\n\
                    type = \"tumbling\"\nsize = \"1s\"\nmode = \"append\"\noutput = { path = \"o\" }\n\
                    aggregates = [{ name = \"n\", function = \"count\" }]\n";
        let config = PipelineConfig::from_str(text, Path::new("p.toml")).unwrap();
        let plans = ParsePlan::of(&config).0;
        let clock = SystemClock::shared();
        let source =
            FileSource::open_with_stdin(&config.sources, plans, &[], clock, Box::new(Broken)).unwrap();
        let mut reader = Reader::start(source).unwrap();
        let ended = loop {
            match reader.next(Duration::from_secs(1)) {
                Ok(Next::Waiting) => {}
                Ok(Next::End) => break None,
                Ok(Next::Block(_)) => panic!("there is nothing to read"),
                Err(error) => break Some(error),
            }
        };
        assert_eq!(ended.map(|error| error.kind()), Some(ErrorKind::Bug));
    }
}
