//! What was declared about a change of the definition: new names, what may be dropped, migrations. Plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::migration::PaneMigration;

/// Names that a window and its parts have in state that was stored before they were renamed. Declarations that no
/// longer apply, because the state has the new names already, do nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renames {
    /// The window's old name.
    pub was: Option<String>,
    /// Old names of aggregates, by the new.
    pub aggregates: BTreeMap<String, String>,
    /// Old names of input fields that aggregates read or that are in the key, by the new.
    pub fields: BTreeMap<String, String>,
}

impl Renames {
    /// The stored name of a field.
    pub(super) fn field<'a>(&'a self, field: &'a str) -> &'a str {
        self.fields.get(field).map_or(field, String::as_str)
    }
}

/// Everything that was declared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// State of what is not asked for any more may be dropped.
    pub(crate) allow_dropped: bool,
    /// By window.
    pub(crate) renames: BTreeMap<String, Renames>,
    /// Window and migration, in the order declared.
    pub(crate) migrations: Vec<(String, Arc<dyn PaneMigration>)>,
}

impl Rules {
    pub(super) fn renames_of(&self, window: &str) -> Renames {
        self.renames.get(window).cloned().unwrap_or_default()
    }
}
