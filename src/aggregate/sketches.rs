//! Where states of variable size live: a slab beside the words of a table or buffer, which refer to it by index.
//!
//! Knows nothing of what a state means. A slab belongs to one table or buffer, and so do the words that point into it.

use std::any::Any;
use std::fmt;

/// What every state can do, whatever its type.
pub(super) trait AnyState: fmt::Debug + Send + Sync {
    fn boxed_clone(&self) -> Box<dyn AnyState>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Clone + fmt::Debug + Send + Sync + 'static> AnyState for T {
    fn boxed_clone(&self) -> Box<dyn AnyState> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A state and the bytes that it takes.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) state: Box<dyn AnyState>,
    pub(super) bytes: usize,
}

impl Clone for Held {
    fn clone(&self) -> Self {
        // Through the box: it is not to be mistaken for a state itself.
        Self { state: (*self.state).boxed_clone(), bytes: self.bytes }
    }
}

/// States of variable size, referred to by words: 0 is no state, n the state at index n − 1.
///
/// A state has one word that points to it. What is copied between slabs goes through rows, which copy the states.
#[derive(Clone, Debug, Default)]
pub struct Sketches {
    states: Vec<Option<Held>>,
    free: Vec<u32>,
    bytes: usize,
}

impl Sketches {
    /// Number of states.
    #[must_use]
    pub fn len(&self) -> usize {
        self.states.len() - self.free.len()
    }

    /// True without states.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held, the states' own included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<Option<Held>>() + self.free.capacity() * 4 + self.bytes
    }

    /// Drops all states and keeps the memory of the slab itself.
    pub fn clear(&mut self) {
        self.states.clear();
        self.free.clear();
        self.bytes = 0;
    }

    pub(super) fn get(&self, word: u64) -> Option<&Held> {
        self.states.get(index(word)?)?.as_ref()
    }

    /// Keeps a state and returns the word that points to it.
    pub(super) fn insert(&mut self, held: Held) -> u64 {
        self.bytes += held.bytes;
        if let Some(at) = self.free.pop() {
            self.states[at as usize] = Some(held);
            return u64::from(at) + 1;
        }
        self.states.push(Some(held));
        self.states.len() as u64
    }

    /// Drops the state behind `word`, if there is one.
    pub(super) fn release(&mut self, word: u64) {
        let Some(at) = index(word) else { return };
        if let Some(held) = self.states.get_mut(at).and_then(Option::take) {
            self.bytes -= held.bytes;
            // As many states as rows, and those are numbered in 32 bits.
            self.free.push(at as u32);
        }
    }

    /// Changes the state behind `word` in place and counts its bytes anew by what `change` returns.
    pub(super) fn change(&mut self, word: u64, change: impl FnOnce(&mut dyn Any) -> usize) {
        if let Some(Some(held)) = index(word).and_then(|at| self.states.get_mut(at)) {
            let bytes = change((*held.state).as_any_mut());
            self.bytes = self.bytes - held.bytes + bytes;
            held.bytes = bytes;
        }
    }
}

fn index(word: u64) -> Option<usize> {
    usize::try_from(word.checked_sub(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: usize) -> Held {
        Held { state: Box::new(vec![0_u8; bytes]), bytes }
    }

    #[test]
    fn places_are_used_again_and_bytes_follow() {
        let mut sketches = Sketches::default();
        let (a, b) = (sketches.insert(held(10)), sketches.insert(held(20)));
        assert_eq!((a, b, sketches.len(), sketches.bytes), (1, 2, 2, 30));
        sketches.release(a);
        sketches.release(a);
        assert_eq!((sketches.len(), sketches.bytes, sketches.insert(held(5))), (1, 20, a));
        sketches.change(b, |_| 7);
        assert_eq!(sketches.bytes, 12);
        assert!(sketches.get(0).is_none() && sketches.get(9).is_none());
        sketches.clear();
        assert!(sketches.is_empty() && sketches.bytes == 0);
    }

    #[test]
    fn a_copy_of_a_slab_has_states_of_its_own() {
        let mut sketches = Sketches::default();
        let word = sketches.insert(held(3));
        let copy = sketches.clone();
        sketches.change(word, |state| {
            state.downcast_mut::<Vec<u8>>().expect("it is bytes").push(1);
            4
        });
        let length = |slab: &Sketches| {
            slab.get(word).and_then(|held| (*held.state).as_any().downcast_ref::<Vec<u8>>()).map(Vec::len)
        };
        assert_eq!((length(&sketches), length(&copy)), (Some(4), Some(3)));
    }
}
