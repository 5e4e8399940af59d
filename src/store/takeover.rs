//! Taking the state directory and its repository over, once everybody has approved of the start.
//!
//! What guards against two writers of one history is the generation in `LINEAGE` beside that in `OWNER`: a state
//! directory that is behind may not go on by itself. So whichever of the two is written first, a cut or a refusal in
//! between must not leave a local generation that has caught up with an owner whose work it does not know.

use super::builder::WindowStoreBuilder;
use super::mirroring::Outbox;
use crate::checkpoint::{FoundDirectory, StateDirectory};
use crate::error::Result;
use crate::repository::{Claim, Prepared, RepositoryError};

/// Opens `found`, and claims the repository for it, to go on from checkpoint `base`.
pub(super) fn take_over(
    mut found: FoundDirectory,
    prepared: Option<Prepared>,
    builder: &WindowStoreBuilder,
    base: Option<u64>,
) -> Result<(StateDirectory, Option<Outbox>)> {
    let (Some(prepared), Some(settings)) = (prepared, &builder.repository) else {
        return Ok((found.open()?, None));
    };
    found.lock()?;
    let (lineage, generation) = (found.lineage(), found.generation());
    let claim = Claim { pipeline: builder.name.clone(), lineage, generation, base };
    let (directory, claimed) = match prepared.is_ahead_of(found.last_generation()) {
        // Told to go on from a local checkpoint although another machine has been here: a cut leaves that to be told again.
        true => {
            let claimed = prepared.claim(claim, builder.retain)?;
            (found.open()?, claimed)
        }
        // The usual restart: a cut leaves the owner behind, and nothing to be told.
        false => {
            let directory = found.open()?;
            match prepared.claim(claim, builder.retain) {
                Ok(claimed) => (directory, claimed),
                Err(error) => {
                    give_back(directory, &error)?;
                    return Err(error.into());
                }
            }
        }
    };
    let uploader = claimed.start(&directory)?;
    Ok((directory, Some(Outbox::new(uploader, settings))))
}

/// Another one was quicker, and may have taken the very generation that we did.
fn give_back(directory: StateDirectory, error: &RepositoryError) -> Result<()> {
    let taken = matches!(
        error,
        RepositoryError::Fenced { .. }
            | RepositoryError::OtherLineage { .. }
            | RepositoryError::OtherPipeline { .. }
    );
    if taken {
        directory.give_back()?;
    }
    Ok(())
}
