//! What a seed stands for: a pipeline, its input, and dice for each step of its fate.
//!
//! Every step throws dice of its own, so that leaving one step out changes no other.

use std::num::NonZeroU32;

use crate::oracle::{Event, Mode, Num, Op, Settings, Trigger, Windows};

const PARTITIONS_MAX: usize = 5;

/// Chance, by a seed.
pub(super) struct Dice(u64);

impl Dice {
    /// The dice of one purpose under a seed.
    pub(super) fn of(seed: u64, purpose: u64) -> Self {
        let mut dice =
            Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.next();
        dice
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to `end`, which is left out.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(super) fn between(&mut self, first: i64, last: i64) -> i64 {
        first + self.below((last - first + 1) as usize) as i64
    }

    /// True once in so many throws.
    pub(super) fn one_in(&mut self, throws: usize) -> bool {
        self.below(throws) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The pipeline of a history.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    /// One or two windows. Delay, partitions and deduplication are the same in both.
    pub(super) windows: Vec<Settings>,
    pub(super) step_rows: Option<usize>,
    pub(super) keep: NonZeroU32,
    /// Whether checkpoints go to a repository, and whether output waits for it.
    pub(super) mirrored: Option<bool>,
}

/// A pipeline and everything that arrives.
pub(super) fn history(seed: u64) -> (Pipeline, Vec<Op>) {
    let mut dice = Dice::of(seed, 0);
    let pipeline = pipeline(&mut dice);
    let input = input(&pipeline.windows[0], &mut dice);
    (pipeline, input)
}

fn pipeline(dice: &mut Dice) -> Pipeline {
    let (delay, partitions, dedupe) = (dice.between(0, 14), 1 + dice.below(3), dice.one_in(4));
    let windows = (0..=usize::from(dice.one_in(2)))
        .map(|_| {
            let settings = window(dice);
            // Deduplication remembers for as long as the delay.
            Settings { delay_ms: delay, partitions, dedupe: dedupe && delay > 0, ..settings }
        })
        .collect();
    Pipeline {
        windows,
        step_rows: dice.one_in(2).then(|| 1 + dice.below(4)),
        keep: NonZeroU32::MIN.saturating_add(dice.below(4) as u32),
        mirrored: [None, None, Some(false), Some(true)][dice.below(4)],
    }
}

fn window(dice: &mut Dice) -> Settings {
    let mut settings = Settings::new(match dice.below(8) {
        0 | 1 => {
            let size = dice.between(1, 19);
            Windows::Tumbling { size, offset: dice.between(1 - size, size - 1) }
        }
        2 | 3 => {
            let slide = dice.between(1, 11);
            Windows::Sliding { size: dice.between(1, 23), slide, offset: dice.between(1 - slide, slide - 1) }
        }
        4 | 5 => Windows::Session { gap: dice.between(1, 13) },
        6 => {
            let step = dice.between(1, 7);
            Windows::Cumulate { max_size: step * dice.between(1, 5), step }
        }
        _ => Windows::Global,
    });
    let global = settings.windows == Windows::Global;
    if !global && dice.one_in(2) {
        settings.allowed_lateness_ms = dice.between(1, 24);
    }
    match dice.below(6) {
        0 => settings.mode = Mode::Update,
        1 => settings.trigger = Trigger::Count(1 + dice.next() % 4),
        2 if !global => settings.trigger = Trigger::Early(dice.between(1, 11)),
        _ => {}
    }
    settings.discarding = settings.mode == Mode::Append && dice.one_in(3);
    settings
}

fn input(settings: &Settings, dice: &mut Dice) -> Vec<Op> {
    let (length, drift) = (40 + dice.below(120), dice.between(0, 3));
    // Some inputs have keys so long that their panes do not fit into memory.
    let long = dice.one_in(12);
    let mut ended = vec![false; settings.partitions];
    let mut input = Vec::new();
    for at in 0..length {
        let open: Vec<usize> = (0..ended.len()).filter(|&partition| !ended[partition]).collect();
        if dice.one_in(50) && ended.len() < PARTITIONS_MAX {
            input.push(Op::PartitionAdded(ended.len()));
            ended.push(false);
        } else if dice.one_in(60) && open.len() > 1 {
            let partition = dice.pick(&open);
            ended[partition] = true;
            input.push(Op::EndOfPartition(partition));
        } else {
            let partition = dice.pick(&open);
            input.push(Op::Event(event(at as i64 * drift, partition, long, settings.dedupe, dice)));
        }
    }
    if dice.one_in(2) {
        input.push(Op::EndOfInput);
    } else {
        let open = (0..ended.len()).filter(|&partition| !ended[partition]);
        input.extend(open.map(Op::EndOfPartition));
    }
    input
}

fn event(now: i64, partition: usize, long: bool, dedupe: bool, dice: &mut Dice) -> Event {
    let reach = if dice.one_in(3) { 40 } else { 6 };
    let key = match dice.below(16) {
        0 => Vec::new(),
        1 => b"a-key-that-does-not-fit-into-its-slot".to_vec(),
        letter if long => vec![b'a' + letter as u8; 60_000 + dice.below(10)],
        letter => vec![b'a' + (letter % 4) as u8],
    };
    Event {
        ts: Some(now + dice.between(-reach, reach) - 20),
        key: Some(key),
        value: (!dice.one_in(10)).then(|| Num::Int(dice.between(-9, 9).into())),
        partition,
        id: dedupe.then(|| format!("id {}", dice.below(60))),
    }
}
