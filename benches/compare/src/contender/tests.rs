//! Every contender has to come to the answer of the hash map, or its time means nothing.

use super::*;
use crate::stream::Shape;

fn results(contender: Contender, stream: &Stream) -> Results {
    let folder = tempfile::tempdir().expect("a directory");
    contender.run(stream, folder.path()).expect("runs").results
}

#[test]
fn every_contender_answers_what_the_hash_map_answers() {
    // More than a minute, so that a window fires before the end.
    for (shape, events) in [(Shape::S1, 700_000), (Shape::S4, 600_000)] {
        let stream = Stream::new(shape, events).expect("a stream");
        let right = results(Contender::HashMap, &stream);
        assert!(right.rows() >= 20_000, "{}", right.rows());
        for contender in Contender::value_variants() {
            let given = results(*contender, &stream);
            assert_eq!(given.differ_from(&right), None, "{contender:?} over {shape:?}");
        }
    }
}

#[test]
fn windows_fire_before_the_end_and_only_once_closed() {
    #[derive(Default)]
    struct Seen(Vec<(i64, usize)>, usize);
    impl PaneStore for &mut Seen {
        fn add(&mut self, _: Rows<'_>) -> Outcome<()> {
            self.1 += 1;
            Ok(())
        }
        fn fire(&mut self, window: i64, _: &mut Results) -> Outcome<()> {
            self.0.push((window, self.1));
            Ok(())
        }
        fn keep(&mut self) -> Outcome<bool> {
            Ok(true)
        }
    }
    let stream = Stream::new(Shape::S1, 1_500_000).expect("a stream");
    let mut seen = Seen::default();
    let run = drive(&mut seen, &stream).expect("runs");
    assert!(run.kept >= 1);
    let batches = stream.batches.len();
    assert!(seen.0.len() >= 4 && seen.0.windows(2).all(|pair| pair[0].0 < pair[1].0), "{:?}", seen.0);
    let newest_after = |batches: usize| {
        let times = stream.batches[..batches].iter().flat_map(|batch| Rows::of(batch).times);
        times.max().copied().expect("events")
    };
    for &(window, after) in seen.0.iter().filter(|(_, after)| *after < batches) {
        let closes = window + WINDOW_MS + DELAY_MS;
        assert!(newest_after(after) >= closes && newest_after(after - 1) < closes, "{window} after {after}");
    }
    assert!(seen.0[0].1 < batches);
}
