//! Families that come and go: how a working database takes the form of another set of operators.
//!
//! Knows names and the epoch, not why. What is cut half-way is a working database, which is never opened again.

use std::sync::Arc;

use super::db::StateDb;
use super::engine::{Family, Setup};
use super::error::StateError;
use super::family::{FamilyId, FamilySpec, check_names};
use super::horizon::Horizon;
use super::key::SENTINEL;
use super::{StateOptions, options};

impl StateDb {
    /// Adds an empty family, of the epoch that the database is of.
    ///
    /// # Errors
    /// [`StateError::FamilyName`] for a name that is taken or not plain, [`StateError::Engine`] when the disk fails.
    pub fn create_family(&mut self, spec: &FamilySpec) -> Result<FamilyId, StateError> {
        let mut families = self.specs.clone();
        families.push(spec.clone());
        check_names(&families)?;
        let (horizon, counters) = (Arc::new(Horizon::new()), Arc::default());
        let state_options = StateOptions::default();
        let memory = self.memory.clone();
        let setup =
            Setup { families: &families, memory: &memory, options: &state_options, filter: true, env: None };
        let name = spec.column_family();
        let created = self.engine.db.create_cf(&name, &setup.family_options(spec, &horizon, &counters));
        created.map_err(StateError::engine("create a family"))?;
        let files = options::handed_over(setup.family_options(spec, &horizon, &counters));
        self.engine.families.push(Family {
            column_family: name.clone(),
            allowed_lateness: spec.allowed_lateness,
            horizon,
            counters,
        });
        self.file_options.push(files);
        self.specs = families;
        let mut writer = self.writer()?;
        writer.evicted_to.push(None);
        if let Some(epoch) = writer.epoch {
            let handle = self.engine.handle(&name)?;
            let written = self.engine.db.put_cf_opt(handle, SENTINEL, epoch.to_le_bytes(), &options::write());
            written.map_err(StateError::engine("write the epoch"))?;
        }
        Ok(FamilyId(self.specs.len() - 1))
    }

    /// Drops families with all that is in them, flushes the others together, and closes the database.
    ///
    /// # Errors
    /// [`StateError::Engine`] when the disk is full or fails, [`StateError::Background`] when it failed before.
    pub fn close_without(mut self, gone: &[FamilyId]) -> Result<(), StateError> {
        let dropped: Vec<String> =
            gone.iter().filter_map(|id| Some(self.specs.get(id.0)?.column_family())).collect();
        for name in &dropped {
            self.engine.db.drop_cf(name).map_err(StateError::engine("drop a family"))?;
        }
        self.engine.families.retain(|family| !dropped.contains(&family.column_family));
        let mut writer = self.writer()?;
        self.flush(&mut writer)?;
        self.engine.check_background()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::PaneKey;
    use crate::event_time::{EventTime, Span};
    use crate::state::{PaneMerge, StateMemory, Stored, Write};

    struct Append;

    impl PaneMerge for Append {
        fn merge(&self, base: &mut Vec<u8>, operand: &[u8]) -> bool {
            base.extend_from_slice(operand);
            true
        }
    }

    fn family(name: &str) -> FamilySpec {
        FamilySpec { name: name.to_owned(), allowed_lateness: Span::ZERO, merge: Arc::new(Append) }
    }

    #[test]
    fn a_database_takes_the_form_of_other_operators() {
        let dir = tempfile::tempdir().unwrap();
        let memory = StateMemory::new(8 << 20);
        let (first, second, linked) =
            (dir.path().join("first"), dir.path().join("second"), dir.path().join("linked"));
        let db = StateDb::create(&first, &[family("old"), family("same")], &memory).unwrap();
        let pane = PaneKey { end: EventTime::from_millis(7), key: b"k" };
        for id in [FamilyId(0), FamilyId(1)] {
            db.write_sorted(id, [(pane, Write::Put(b"x"))].into_iter(), 1).unwrap();
        }
        db.link_checkpoint(&second, 5).unwrap();
        let mut db = StateDb::open(&second, &[family("old"), family("same")], &memory).unwrap();
        let new = db.create_family(&family("new")).unwrap();
        assert!(db.create_family(&family("new")).is_err(), "the name is taken");
        db.write_sorted(new, [(pane, Write::Put(b"y"))].into_iter(), 1).unwrap();
        db.close_without(&[FamilyId(0)]).unwrap();
        // The epoch is in every family, or this would be refused as torn.
        let db = StateDb::open(&second, &[family("new"), family("same")], &memory).unwrap();
        assert_eq!(db.get(FamilyId(0), pane).unwrap().unwrap().get(), Stored::Pane(b"y"));
        assert_eq!(db.get(FamilyId(1), pane).unwrap().unwrap().get(), Stored::Pane(b"x"));
        db.link_checkpoint(&linked, 6).unwrap();
    }
}
