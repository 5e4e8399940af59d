//! What is to be explained: which window, which key, which stretch of time. Refuses what the pipeline does not have
//! before any input is read.

use std::collections::BTreeSet;

use super::ExplainOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::event_time::{EventTime, Window, Windows};
use crate::inspect::Key;
use crate::operator::{OperatorSpec, TimeDomain};
use crate::pipeline::config::{PipelineConfig, WindowConfig, closest};

/// Distinct keys that are remembered to suggest one instead of a key that never comes.
const KEYS_REMEMBERED_MAX: usize = 1_000;
/// Of these, so many are named.
const KEYS_NAMED: usize = 5;

/// What is explained of a window.
#[derive(Debug)]
pub(super) struct Subject {
    /// As it is stored; `None` for all keys, or until the first one comes.
    pub(super) key: Option<Vec<u8>>,
    /// The key was not asked for.
    pub(super) key_chosen: bool,
    /// The first key that comes is the one.
    takes_first: bool,
    pub(super) start: Option<EventTime>,
    components: usize,
    // Others that came, while the one asked for has not.
    others: BTreeSet<Vec<u8>>,
    first_others: Vec<Vec<u8>>,
    met: bool,
}

impl Subject {
    pub(super) fn new(options: &ExplainOptions, spec: &OperatorSpec) -> Result<Self> {
        let components = spec.key.len().max(1);
        if let Some(key) = &options.key {
            check_key(key, spec)?;
        }
        if let Some(start) = options.start {
            check_start(start, spec)?;
        }
        let key = match &options.key {
            None if spec.key.is_empty() => Some(Vec::new()),
            asked => asked.as_ref().map(Key::to_stored),
        };
        Ok(Self {
            takes_first: key.is_none() && options.start.is_none(),
            key,
            key_chosen: false,
            start: options.start,
            components,
            others: BTreeSet::new(),
            first_others: Vec::new(),
            met: false,
        })
    }

    pub(super) fn takes_first(&self) -> bool {
        self.takes_first
    }

    /// Takes the first key that came.
    pub(super) fn choose(&mut self, key: &[u8]) {
        self.key = Some(key.to_vec());
        self.key_chosen = true;
        self.takes_first = false;
    }

    /// Notes that there is something to tell.
    pub(super) fn meet(&mut self) {
        self.met = true;
        self.others.clear();
    }

    /// True when an event with this key, at `time`, is to be explained.
    pub(super) fn concerns(&mut self, windows: &Windows, key: &[u8], time: EventTime) -> bool {
        if self.takes_first {
            self.choose(key);
        }
        if self.key.as_ref().is_some_and(|own| own != key) {
            self.remember(key);
            return false;
        }
        let concerns = match self.start {
            Some(start) => windows.windows_of(time).any(|window| window.start == start),
            None => true,
        };
        if self.key.is_some() || concerns {
            self.meet();
        }
        concerns
    }

    fn remember(&mut self, key: &[u8]) {
        if self.met || self.others.len() >= KEYS_REMEMBERED_MAX || self.others.contains(key) {
            return;
        }
        self.others.insert(key.to_vec());
        if self.first_others.len() < KEYS_NAMED {
            self.first_others.push(key.to_vec());
        }
    }

    /// True when a window is to be explained.
    pub(super) fn holds(&self, window: Window) -> bool {
        self.start.is_none_or(|start| start == window.start)
    }

    /// True when the text of a record that is no event names the key. Without its fields there is no better sign.
    pub(super) fn is_named_in(&self, text: &[u8]) -> bool {
        let Some(key) = &self.key else { return false };
        let Key(components) = Key::from_stored(key, self.components);
        components.iter().all(|component| contains_word(text, component))
    }

    pub(super) fn shown_key(&self, key: &[u8]) -> Key {
        Key::from_stored(key, self.components)
    }

    /// The refusal when the key asked for never came.
    pub(super) fn check_met(&self, spec: &OperatorSpec, events: u64) -> Result<()> {
        let (false, false, Some(key)) = (self.met, self.key_chosen || spec.key.is_empty(), &self.key) else {
            return Ok(());
        };
        let shown = |key: &Vec<u8>| self.shown_key(key).to_string();
        let message =
            format!("no event has this key: window={} key={} events={events}", spec.name, shown(key));
        let names: Vec<String> = self.others.iter().map(shown).collect();
        let remedy = match closest(&shown(key), names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None if names.is_empty() => "look at the input: no event of this window came at all".to_owned(),
            None => {
                let first: Vec<String> = self.first_others.iter().map(shown).collect();
                format!(
                    "leave --key out to take the first key, or ask for one that comes: {}",
                    first.join("; ")
                )
            }
        };
        Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy))
    }
}

/// True when `text` contains `word` with no letter or digit next to it.
fn contains_word(text: &[u8], word: &[u8]) -> bool {
    if word.is_empty() {
        return true;
    }
    let is_word = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    memchr::memmem::find_iter(text, word).any(|at| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !is_word(before) && !is_word(text.get(at + word.len()))
    })
}

/// The index of the window that is asked for; without a name, of the first.
pub(super) fn choose_window(config: &PipelineConfig, name: Option<&str>) -> Result<usize> {
    let names: Vec<&str> = config.windows.iter().map(|window| window.name.as_str()).collect();
    let index = match name {
        None => config.windows.iter().position(|window| window.time == TimeDomain::Event).unwrap_or(0),
        Some(name) => names.iter().position(|known| *known == name).ok_or_else(|| {
            let message = format!("the pipeline has no such window: window={name:?}");
            let remedy = match closest(name, names.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("ask for one that it has: {}", names.join(", ")),
            };
            Error::new(ErrorKind::Invalid, message).with_remedy(remedy)
        })?,
    };
    config.windows.get(index).map_or(Ok(()), |window| refuse_wall_clock(window, config))?;
    Ok(index)
}

fn refuse_wall_clock(window: &WindowConfig, config: &PipelineConfig) -> Result<()> {
    if window.time == TimeDomain::Event {
        return Ok(());
    }
    let message = format!(
        "the window follows the wall clock: which events it took depends on when they were processed, and that is \
         written nowhere: window={:?}",
        window.name
    );
    let others = config.windows.iter().filter(|other| other.time == TimeDomain::Event);
    let others: Vec<&str> = others.map(|window| window.name.as_str()).collect();
    let remedy = match others.is_empty() {
        true => "look at its results; only windows of event time can be explained".to_owned(),
        false => format!("ask with --window for one of event time: {}", others.join(", ")),
    };
    Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy))
}

fn check_key(key: &Key, spec: &OperatorSpec) -> Result<()> {
    let (given, needed) = (key.0.len(), spec.key.len());
    if given == needed {
        return Ok(());
    }
    let message = format!(
        "the key of the window has another number of fields: window={} fields={needed} given={given}",
        spec.name
    );
    let remedy = match needed {
        0 => "leave --key out: the window has no key".to_owned(),
        _ => format!("give one --key for each field, in this order: {}", spec.key.join(", ")),
    };
    Err(Error::new(ErrorKind::Invalid, message).with_remedy(remedy))
}

fn check_start(start: EventTime, spec: &OperatorSpec) -> Result<()> {
    let refuse = |message: String, remedy: String| {
        Err(Error::new(ErrorKind::Invalid, format!("{message}: window={} start={start}", spec.name))
            .with_remedy(remedy))
    };
    match &spec.windows {
        Windows::Session { .. } => refuse(
            "sessions begin where their events are, not at a time that is known before".to_owned(),
            "ask for one key with --key instead of --start".to_owned(),
        ),
        Windows::Global => refuse(
            "there is one window for all time, which begins nowhere".to_owned(),
            "leave --start out".to_owned(),
        ),
        windows if windows_from(windows, start).is_empty() => {
            let holding: Vec<String> =
                windows.windows_of(start).take(2).map(|window| window.start.to_string()).collect();
            let remedy = match holding.is_empty() {
                true => format!("the windows are {windows}: give a time at which one begins"),
                false => format!("windows that hold this time start at: {}", holding.join(", ")),
            };
            refuse("no window starts then".to_owned(), remedy)
        }
        _ => Ok(()),
    }
}

/// The windows that begin at `start`; of cumulative ones there are several.
pub(super) fn windows_from(windows: &Windows, start: EventTime) -> Vec<Window> {
    windows.windows_of(start).filter(|window| window.start == start).collect()
}

/// The ends of stored windows, or slices, that windows from `start` are made of: after the first, by the second.
pub(super) fn stored_ends(spec: &OperatorSpec, start: EventTime) -> Option<(EventTime, EventTime)> {
    let windows = windows_from(&spec.windows, start);
    let (first, last) = (windows.first()?.end, windows.last()?.end);
    let after = if spec.shares_slices() { start } else { EventTime::from_millis(first.as_millis() - 1) };
    Some((after, last))
}
