//! Column families: what an operator asks for, and the names it gets.
//!
//! Knows how payloads are merged only through [`PaneMerge`], which the aggregates implement.

use std::fmt;
use std::sync::Arc;

use super::error::StateError;
use crate::event_time::Span;

/// Families that every state database has besides those of its operators.
pub(super) const FIXED: [&str; 2] = ["default", "meta"];

/// Merges payloads of panes; implemented by the aggregates.
pub trait PaneMerge: Send + Sync + 'static {
    /// Merges `operand` into `base`. Returns false when either cannot be understood.
    ///
    /// Called from several background threads at once. What is left in `base` after a refusal or a panic is not
    /// used: the state database keeps both inputs and shows the pane as damaged.
    fn merge(&self, base: &mut Vec<u8>, operand: &[u8]) -> bool;
}

/// What the state database needs to know about the panes of one operator.
#[derive(Clone)]
pub struct FamilySpec {
    /// The operator's name; the column family is called `<name>.windows`.
    pub name: String,
    /// How long after its end a pane may still change.
    pub allowed_lateness: Span,
    /// How payloads of this operator are merged.
    pub merge: Arc<dyn PaneMerge>,
}

impl fmt::Debug for FamilySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, allowed_lateness, merge: _ } = self;
        f.debug_struct("FamilySpec").field("name", name).field("allowed_lateness", allowed_lateness).finish()
    }
}

impl FamilySpec {
    /// Name of the column family.
    #[must_use]
    pub fn column_family(&self) -> String {
        format!("{}.windows", self.name)
    }
}

/// Which of a database's families: the index into the specs it was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FamilyId(pub usize);

/// Checks names once, at the door.
pub(super) fn check_names(families: &[FamilySpec]) -> Result<(), StateError> {
    for (index, spec) in families.iter().enumerate() {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let used = families[..index].iter().any(|other| other.name == spec.name);
        if used || spec.name.is_empty() || !spec.name.bytes().all(plain) {
            return Err(StateError::FamilyName { name: spec.name.clone() });
        }
    }
    Ok(())
}

/// Names of all column families of a database with these operators, in a fixed order.
pub(super) fn column_families(families: &[FamilySpec]) -> Vec<String> {
    let fixed = FIXED.iter().map(|&name| name.to_owned());
    fixed.chain(families.iter().map(FamilySpec::column_family)).collect()
}
