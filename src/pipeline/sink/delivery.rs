//! Publishing on the checkpoint's thread: what can be delivered is, what has to wait is carried into the next manifest.
//!
//! It knows handles and permits, not where they lead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::contract::{Delivery, Publish, PublishPermit};
use crate::checkpoint::StagedOutput;
use crate::error::{Error, ErrorKind, Result};

/// Epochs of one sink that may wait while processing goes on. With one more, processing waits too.
pub(in crate::pipeline) const WAITING_MAX: usize = 64;
/// Tries in a row before a run gives up, and the first and the longest pause between two of them: about a minute.
const TRIES: u32 = 18;
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How much waits to be delivered, for whoever watches: written by the thread that publishes, read at any time.
#[derive(Debug, Default)]
pub(in crate::pipeline) struct DeliveryFigures {
    epochs: AtomicU64,
    rows: AtomicU64,
}

impl DeliveryFigures {
    /// Most epochs of one sink that wait, and rows of all that wait.
    pub(in crate::pipeline) fn waiting(&self) -> (u64, u64) {
        (self.epochs.load(Ordering::Relaxed), self.rows.load(Ordering::Relaxed))
    }
}

/// The publishing halves of all outputs, and what they have not delivered yet.
#[derive(Debug)]
pub(in crate::pipeline) struct Deliveries {
    publishers: Vec<Box<dyn Publish>>,
    // In order of epoch, for each sink at most WAITING_MAX. Every manifest names them until they are delivered.
    waiting: Vec<StagedOutput>,
    figures: Arc<DeliveryFigures>,
    pause: fn(Duration),
}

impl Deliveries {
    pub(in crate::pipeline) fn new(publishers: Vec<Box<dyn Publish>>) -> Self {
        Self { publishers, waiting: Vec::new(), figures: Arc::default(), pause: std::thread::sleep }
    }

    /// What the next manifest has to name beside its own.
    pub(in crate::pipeline) fn waiting(&self) -> &[StagedOutput] {
        &self.waiting
    }

    /// How much waits, to be read beside the work.
    pub(in crate::pipeline) fn figures(&self) -> Arc<DeliveryFigures> {
        Arc::clone(&self.figures)
    }

    /// Publishes `staged`, in order of epoch and with what was waiting already in it. Returns when at most
    /// [`WAITING_MAX`] epochs of a sink wait.
    pub(in crate::pipeline) fn publish(
        &mut self,
        staged: Vec<StagedOutput>,
        permit: &dyn PublishPermit,
    ) -> Result<()> {
        self.waiting = staged;
        match self.deliver(permit)? {
            None => Ok(()),
            Some(reason) if self.most_waiting() <= WAITING_MAX => {
                // Told when it begins, and then ever more rarely.
                if self.most_waiting().is_power_of_two() {
                    tracing::warn!(
                        waiting_epochs = self.most_waiting(), limit = WAITING_MAX, %reason,
                        "results wait to be delivered; they are staged durably, and processing goes on"
                    );
                }
                Ok(())
            }
            Some(_) => self.insist(WAITING_MAX, permit),
        }
    }

    /// Publishes what is waiting until at most `limit` epochs of a sink wait, with pauses that grow, and gives up in the
    /// end.
    pub(in crate::pipeline) fn insist(&mut self, limit: usize, permit: &dyn PublishPermit) -> Result<()> {
        let mut pause = PAUSE_FIRST;
        for left in (0..TRIES).rev() {
            let Some(reason) = self.deliver(permit)? else { return Ok(()) };
            let waiting = self.most_waiting();
            if waiting <= limit {
                return Ok(());
            }
            if left == 0 {
                return Err(given_up(waiting, reason));
            }
            tracing::warn!(waiting_epochs = waiting, pause_ms = pause.as_millis() as u64, %reason, "trying again");
            (self.pause)(pause);
            pause = PAUSE_MAX.min(pause * 2);
        }
        Ok(())
    }

    /// Publishes what can be. A handle that has to wait holds back the later ones of its sink, and no others.
    fn deliver(&mut self, permit: &dyn PublishPermit) -> Result<Option<Error>> {
        let mut blocked: Vec<(String, Error)> = Vec::new();
        let mut waiting = Vec::new();
        let mut outcome = Ok(());
        for staged in std::mem::take(&mut self.waiting) {
            let is_blocked = blocked.iter().any(|(sink, _)| *sink == staged.sink);
            if is_blocked || outcome.is_err() {
                waiting.push(staged);
                continue;
            }
            match self.publisher(&staged.sink).and_then(|publisher| publisher.publish(&staged, permit)) {
                Ok(Delivery::Done) => {}
                Ok(Delivery::Later(reason)) => {
                    blocked.push((staged.sink.clone(), reason));
                    waiting.push(staged);
                }
                Err(error) => {
                    waiting.push(staged);
                    outcome = Err(error);
                }
            }
        }
        self.waiting = waiting;
        self.note_waiting();
        outcome.map(|()| blocked.into_iter().next().map(|(_, reason)| reason))
    }

    fn note_waiting(&self) {
        let rows = self.waiting.iter().map(|staged| staged.rows).sum();
        self.figures.epochs.store(self.most_waiting() as u64, Ordering::Relaxed);
        self.figures.rows.store(rows, Ordering::Relaxed);
    }

    fn publisher(&mut self, sink: &str) -> Result<&mut Box<dyn Publish>> {
        let known = self.publishers.iter_mut().find(|publisher| publisher.sink() == sink);
        known
            .ok_or_else(|| Error::new(ErrorKind::Bug, format!("staged output has no publisher: name={sink}")))
    }

    fn most_waiting(&self) -> usize {
        let of = |sink: &str| self.waiting.iter().filter(|staged| staged.sink == sink).count();
        self.publishers.iter().map(|publisher| of(publisher.sink())).max().unwrap_or(0)
    }
}

fn given_up(waiting: usize, reason: Error) -> Error {
    let message = format!("results cannot be delivered: waiting_epochs={waiting} cause={reason}");
    let error = Error::new(ErrorKind::Unavailable, message).with_remedy(
        "nothing is lost: state and staged results are durable. Mend the cause and run again, which delivers them first",
    );
    error.with_source(reason)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::tests::Durable;
    use super::*;

    /// Delivers while it is in reach.
    #[derive(Debug)]
    struct Place {
        sink: &'static str,
        in_reach: Arc<Mutex<u32>>,
        delivered: Arc<Mutex<Vec<(&'static str, u64)>>>,
    }

    impl Publish for Place {
        fn sink(&self) -> &str {
            self.sink
        }

        fn publish(&mut self, staged: &StagedOutput, _: &dyn PublishPermit) -> Result<Delivery> {
            let mut away = self.in_reach.lock().unwrap();
            if *away > 0 {
                *away -= 1;
                return Ok(Delivery::Later(Error::new(ErrorKind::Unavailable, "away")));
            }
            self.delivered.lock().unwrap().push((self.sink, staged.rows));
            Ok(Delivery::Done)
        }
    }

    fn staged(sink: &str, epoch: u64) -> StagedOutput {
        StagedOutput { sink: sink.to_owned(), handle: Vec::new(), rows: epoch, bytes: 0 }
    }

    type Seen = Arc<Mutex<Vec<(&'static str, u64)>>>;

    fn deliveries(away: u32) -> (Deliveries, Arc<Mutex<u32>>, Seen) {
        let (away, seen) = (Arc::new(Mutex::new(away)), Seen::default());
        let place = |sink, in_reach| Box::new(Place { sink, in_reach, delivered: Arc::clone(&seen) });
        let table = place("table", Arc::clone(&away));
        let files = place("files", Arc::default());
        let mut deliveries = Deliveries::new(vec![table, files]);
        deliveries.pause = |_| {};
        (deliveries, away, seen)
    }

    #[test]
    fn what_has_to_wait_holds_back_its_own_sink_only_and_keeps_its_order() {
        let (mut deliveries, _, seen) = deliveries(2);
        deliveries.publish(vec![staged("table", 1), staged("files", 1)], &Durable(1)).unwrap();
        let mut next = deliveries.waiting().to_vec();
        next.extend([staged("table", 2), staged("files", 2)]);
        deliveries.publish(next, &Durable(2)).unwrap();
        assert_eq!(deliveries.waiting(), [staged("table", 1), staged("table", 2)]);
        assert_eq!(deliveries.figures().waiting(), (2, 3));
        deliveries.insist(0, &Durable(2)).unwrap();
        assert!(deliveries.waiting().is_empty());
        assert_eq!(deliveries.figures().waiting(), (0, 0));
        assert_eq!(*seen.lock().unwrap(), [("files", 1), ("files", 2), ("table", 1), ("table", 2)]);
    }

    #[test]
    fn processing_goes_on_up_to_a_bound_and_gives_up_with_nothing_lost() {
        let (mut deliveries, away, seen) = deliveries(u32::MAX);
        let mut refused = None;
        for epoch in 1..=WAITING_MAX as u64 + 1 {
            let mut next = deliveries.waiting().to_vec();
            next.push(staged("table", epoch));
            if let Err(error) = deliveries.publish(next, &Durable(epoch)) {
                refused = Some((epoch, error));
            }
        }
        let (epoch, error) = refused.unwrap();
        assert_eq!((epoch, error.kind()), (WAITING_MAX as u64 + 1, ErrorKind::Unavailable));
        assert_eq!(u32::MAX - *away.lock().unwrap(), WAITING_MAX as u32 + 1 + TRIES);
        assert_eq!(deliveries.waiting().len(), WAITING_MAX + 1);
        *away.lock().unwrap() = 0;
        deliveries.insist(0, &Durable(epoch)).unwrap();
        assert_eq!(seen.lock().unwrap().len(), WAITING_MAX + 1);
    }
}
