//! Damage trials: bytes of a stored checkpoint are spoiled, and a start has to notice, refuse, and name the way back, which
//! is then taken.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use floodmark::checkpoint;
use floodmark::error::{Error, ErrorKind};
use serde::Serialize;

use super::base::{Base, Stored, stored};
use super::moment::Ambush;
use super::plan::{DamagePlan, Moment, Point, Target, Way};
use super::process::{How, Runner};
use super::redirect;
use super::scratch::{self, Scratch, Tables, failed};
use super::trial::Reference;

/// The exit code of a start that finds damage.
const DAMAGED: i32 = 5;
/// Attempts to have a state with two checkpoints and output that is staged.
const SPECIMENS_MAX: u32 = 4;
const ALL_WAYS: &[Way] = &[Way::Flip, Way::Truncate, Way::Remove];
/// A staged file that is gone may have been published and taken away by a reader, if the owner file says so.
const WAYS_OF_PUBLISHED: &[Way] = &[Way::Flip, Way::Truncate];

/// What became of a damage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Damage {
    pub(super) number: u32,
    pub(super) target: Target,
    pub(super) way: Way,
    /// The file, below the directory of the run.
    pub(super) file: String,
    /// What was done to it, exactly.
    pub(super) how: String,
    /// Whether the verification of the checkpoint found it; null where the file is no part of the checkpoint.
    pub(super) verify_found: Option<bool>,
    /// The exit code of the start.
    pub(super) exit_code: Option<i32>,
    /// What the start said.
    pub(super) message: String,
    /// Whether it was noticed wherever it had to be.
    pub(super) detected: bool,
    /// Going back to an older checkpoint; null where there is none, or the damage is not to the checkpoint.
    pub(super) went_back: Option<WayBack>,
}

/// A restore of the checkpoint before the damaged one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct WayBack {
    pub(super) epoch: u64,
    /// Whether it ended with the bytes of the uninterrupted run.
    pub(super) same_bytes: bool,
    /// What went wrong, when it did not.
    pub(super) failure: Option<String>,
}

impl Damage {
    /// True when it was noticed, and the way back, where there is one, led back.
    pub(super) fn is_good(&self) -> bool {
        self.detected && self.went_back.as_ref().is_none_or(|back| back.same_bytes)
    }
}

/// The state of a killed run, of which copies are damaged.
pub(super) struct Specimen {
    root: PathBuf,
    newest: Stored,
    older: Option<u64>,
    // Files of staged output, and whether a start is sure to miss them.
    staged: Vec<PathBuf>,
    unpublished: bool,
}

impl Specimen {
    /// Kills a run as a checkpoint is complete, until there is a state with two checkpoints and staged output, or too many
    /// were tried. None when the last run came to no checkpoint.
    ///
    /// # Errors
    /// `Unavailable` when the machine is in the way.
    pub(super) fn new(
        runner: &Runner,
        base: &Base,
        reference: &Reference,
        scratch: &Scratch,
    ) -> Result<Option<Self>, Error> {
        let mut last = None;
        for attempt in 0..SPECIMENS_MAX {
            let root = scratch.place("specimen")?;
            base.lay_out(&root)?;
            let after = 0.5 + 0.1 * f64::from(attempt);
            let ambush =
                Ambush::new(&root, Moment::Point { point: Point::Complete, after }, reference.length);
            let mut running = runner.start(&root, How { rate: reference.rate, at: None })?;
            ambush.wait(&mut running)?;
            running.kill()?;
            last = Self::found(&root)?;
            if last.as_ref().is_some_and(|found| found.older.is_some() && !found.staged.is_empty()) {
                break;
            }
        }
        Ok(last)
    }

    fn found(root: &Path) -> Result<Option<Self>, Error> {
        let mut all = stored(&redirect::state(root))?;
        let Some(newest) = all.pop() else { return Ok(None) };
        let older = all.last().map(|stored| stored.epoch);
        let (staged, unpublished) = unpublish(root, &newest)?;
        Ok(Some(Self { root: root.to_owned(), newest, older, staged, unpublished }))
    }

    /// What there is to damage.
    pub(super) fn present(&self) -> Result<Vec<(Target, &'static [Way])>, Error> {
        let mut present = Vec::new();
        for target in [
            Target::Manifest,
            Target::Table,
            Target::Current,
            Target::DatabaseManifest,
            Target::Options,
            Target::Other,
            Target::Lineage,
            Target::Staged,
        ] {
            let ways =
                if target == Target::Staged && !self.unpublished { WAYS_OF_PUBLISHED } else { ALL_WAYS };
            if !self.files(target)?.is_empty() {
                present.push((target, ways));
            }
        }
        Ok(present)
    }

    /// Files of a kind, below the directory of the run. Empty ones cannot be damaged in every way and are left out.
    fn files(&self, target: Target) -> Result<Vec<PathBuf>, Error> {
        let below = |path: &Path| path.strip_prefix(&self.root).unwrap_or(path).to_owned();
        let candidates = match target {
            Target::Manifest => vec![self.newest.path.join("MANIFEST.fm")],
            Target::Lineage => vec![redirect::state(&self.root).join("LINEAGE")],
            Target::Staged => self.staged.clone(),
            _ => {
                let mut files = list(&self.newest.path.join("db"))?;
                files.retain(|path| kind_of(path) == target);
                files
            }
        };
        let holds = |path: &PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
        Ok(candidates.iter().filter(|path| holds(path)).map(|path| below(path)).collect())
    }

    /// Damages a copy and starts from it.
    ///
    /// # Errors
    /// `Unavailable` when the machine is in the way of the drill itself.
    pub(super) fn carry_out(
        &self,
        plan: &DamagePlan,
        runner: &Runner,
        reference: &Reference,
        scratch: &Scratch,
    ) -> Result<Damage, Error> {
        let files = self.files(plan.target)?;
        let file = files
            .get((plan.which % files.len().max(1) as u64) as usize)
            .ok_or_else(|| Error::new(ErrorKind::Bug, format!("nothing to damage: {}", plan.target)))?;
        let root = scratch.place(&format!("damage-{:03}", plan.number))?;
        scratch::copy(&self.root, &root, Tables::Copied)?;
        let how = spoil(&root.join(file), plan)?;
        let in_checkpoint = !matches!(plan.target, Target::Lineage | Target::Staged);
        let name = self.newest.path.file_name().unwrap_or_default();
        let checkpoint = redirect::state(&root).join("checkpoints").join(name);
        let verify_found = in_checkpoint.then(|| !checkpoint::verify(&checkpoint).is_sound());
        let ended = runner.run(&root, How::default())?;
        let detected = ended.code == Some(DAMAGED) && verify_found != Some(false);
        let older = self.older.filter(|_| plan.target != Target::Lineage && ended.code == Some(DAMAGED));
        let went_back = older.map(|epoch| go_back(epoch, runner, reference, &root)).transpose()?;
        let damage = Damage {
            number: plan.number,
            target: plan.target,
            way: plan.way,
            file: file.display().to_string(),
            how,
            verify_found,
            exit_code: ended.code,
            message: match ended.failure() {
                Some(_) => ended.stderr.lines().next().unwrap_or_default().to_owned(),
                None if reference.differences(&root)?.is_empty() => {
                    "it ran, with the right output".to_owned()
                }
                None => "it ran, with wrong output".to_owned(),
            },
            detected,
            went_back,
        };
        if damage.is_good() {
            scratch::remove(&root)?;
        }
        Ok(damage)
    }
}

fn go_back(epoch: u64, runner: &Runner, reference: &Reference, root: &Path) -> Result<WayBack, Error> {
    let ended = runner.run(root, How { rate: None, at: Some(epoch) })?;
    let failure = ended.failure();
    let same_bytes = failure.is_none() && reference.differences(root)?.is_empty();
    Ok(WayBack { epoch, same_bytes, failure })
}

/// What a file of the database is.
fn kind_of(path: &Path) -> Target {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name {
        "CURRENT" => Target::Current,
        _ if name.ends_with(".sst") => Target::Table,
        _ if name.starts_with("MANIFEST-") => Target::DatabaseManifest,
        _ if name.starts_with("OPTIONS-") => Target::Options,
        _ => Target::Other,
    }
}

/// Makes the output of a checkpoint staged again where it was visible already. Returns the staged files, and whether all
/// of them were staged before, so that a start is sure to miss them.
fn unpublish(root: &Path, newest: &Stored) -> Result<(Vec<PathBuf>, bool), Error> {
    let report = checkpoint::verify(&newest.path);
    let Some(manifest) = report.manifest.as_ref() else { return Ok((Vec::new(), false)) };
    let lineage = manifest.lineage.to_string();
    let prefix = format!("{}-{}-{}", lineage.get(..8).unwrap_or_default(), manifest.generation, newest.epoch);
    let (mut files, mut unpublished) = (Vec::new(), true);
    for staged in &manifest.staged {
        let output = redirect::outputs(root).join(&staged.sink);
        let staging = output.join(".staging");
        let named = |path: &PathBuf, stem: &str| path.file_stem().is_some_and(|found| found == stem);
        if let Some(file) = list(&staging)?.into_iter().find(|path| named(path, &prefix)) {
            files.push(file);
            continue;
        }
        let part = format!("part-{:010}", newest.epoch);
        let Some(part) = list(&output)?.into_iter().find(|path| named(path, &part)) else { continue };
        let extension = part.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let file = staging.join(format!("{prefix}.{extension}"));
        fs::copy(&part, &file).map_err(|error| failed("copy", &part, error))?;
        fs::remove_file(&part).map_err(|error| failed("remove", &part, error))?;
        files.push(file);
        unpublished = false;
    }
    Ok((files, unpublished))
}

/// The files of a directory by name; none where there is no directory.
fn list(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| failed("read", directory, error))?,
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed("read", directory, error))?;
    paths.retain(|path| path.is_file());
    paths.sort();
    Ok(paths)
}

/// Damages a file that holds something, and says how.
fn spoil(path: &Path, plan: &DamagePlan) -> Result<String, Error> {
    let error = |error| failed("damage", path, error);
    let length = fs::metadata(path).map_err(error)?.len();
    let at = plan.place % length.max(1);
    match plan.way {
        Way::Flip => {
            let file = File::options().read(true).write(true).open(path).map_err(error)?;
            let (mut byte, bit) = ([0], (plan.place >> 56) % 8);
            file.read_exact_at(&mut byte, at).map_err(error)?;
            byte[0] ^= 1 << bit;
            file.write_all_at(&byte, at).map_err(error)?;
            Ok(format!("bit {bit} of byte {at} of {length} flipped"))
        }
        Way::Truncate => {
            File::options().write(true).open(path).and_then(|file| file.set_len(at)).map_err(error)?;
            Ok(format!("cut to {at} of {length} bytes"))
        }
        Way::Remove => {
            fs::remove_file(path).map_err(error)?;
            Ok("removed".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn every_way_changes_the_file() {
        for place in [0, 4, u64::MAX, 0x0123_4567_89ab_cdef] {
            for way in [Way::Flip, Way::Truncate, Way::Remove] {
                let folder = tempfile::tempdir().expect("a directory");
                let path = folder.path().join("f");
                File::create(&path).and_then(|mut file| file.write_all(b"12345")).expect("written");
                let plan = DamagePlan { number: 1, target: Target::Table, way, which: 0, place };
                spoil(&path, &plan).expect("spoiled");
                match (way, fs::read(&path)) {
                    (Way::Flip, Ok(bytes)) => assert!(bytes.len() == 5 && bytes != b"12345"),
                    (Way::Truncate, Ok(bytes)) => assert!(bytes.len() < 5),
                    (Way::Remove, Err(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn files_of_the_database_are_told_by_their_names() {
        let kind = |name: &str| kind_of(Path::new(name));
        assert_eq!(kind("db/000012.sst"), Target::Table);
        assert_eq!(kind("db/CURRENT"), Target::Current);
        assert_eq!(kind("db/MANIFEST-000005"), Target::DatabaseManifest);
        assert_eq!(kind("db/OPTIONS-000007"), Target::Options);
        assert_eq!(kind("db/IDENTITY"), Target::Other);
    }
}
