//! The publishing half of an output: staged files become parts, once, and a restart puts the directory in order.
//!
//! It knows names, sums and epochs, and takes the caller's word, through a permit, that a checkpoint is durable.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::contract::{AheadPolicy, Delivery, Publish, PublishPermit, RecoverReport, Restored, SinkContext};
use super::durable;
use super::error::SinkError;
use super::names::{self, StagingName};
use super::staged::StagedFile;
use super::writer::Place;
use crate::checkpoint::StagedOutput;
use crate::codec;
use crate::error::Result;

/// How often the lock of a directory is tried, and how long is waited in between.
pub(super) const LOCK_ATTEMPTS: u32 = 10;
pub(super) const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

pub(super) const OWNER_MAGIC: [u8; 8] = *b"FLOODOWN";
pub(super) const OWNER_VERSION: u32 = 1;

/// No owner file is larger: two numbers and two short names.
const OWNER_BYTES_MAX: u64 = 64 * 1024;

/// Contents of the owner file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    sink: String,
    lineage: [u8; 16],
    generation: u64,
    // Every staged file up to this epoch was published, even if a reader has taken the part away since.
    published_epoch: u64,
    // What the rows look like.
    look: String,
    // Epochs, first and last, whose parts were set aside: their checkpoints no longer match this directory.
    abandoned: Vec<(u64, u64)>,
}

/// Publishes staged files, each once.
#[derive(Debug)]
pub(super) struct Publisher {
    place: Place,
    owner: Owner,
    // Holds the directory for as long as the publisher lives.
    _lock: File,
}

impl Publish for Publisher {
    fn sink(&self) -> &str {
        &self.place.sink
    }

    fn publish(&mut self, staged: &StagedOutput, permit: &dyn PublishPermit) -> Result<Delivery> {
        let staged = StagedFile::of(staged, &self.place.sink)?;
        staged.check_permit(permit)?;
        self.check_owner()?;
        durable::fault("sink.publish.before", &self.place.directory)?;
        self.settle(&staged)?;
        durable::fault("sink.publish.after", &self.place.directory)?;
        Ok(Delivery::Done)
    }
}

impl Publisher {
    /// Refuses once another run has taken the directory over. While the lock holds there is none; a lock file that was
    /// deleted holds nobody back.
    fn check_owner(&self) -> Result<(), SinkError> {
        let (ours, path) = (self.owner.generation, self.place.directory.clone());
        match Owner::load(&self.place)? {
            Some(now) if now.lineage != self.owner.lineage || now.generation > ours => {
                Err(SinkError::Fenced { path, ours, newer: now.generation })
            }
            _ => Ok(()),
        }
    }

    /// Cut before the rename: the staged file is whole. Cut after it: the part is whole, and the owner file one epoch
    /// behind, which the next `settle` of the same handle mends. Returns whether the part is new.
    fn settle(&mut self, staged: &StagedFile) -> Result<bool, SinkError> {
        let (from, to) = ends(&self.place, staged);
        let new = match settlement(&self.place, staged, self.owner.published_epoch, true)? {
            Settlement::Published => {
                durable::remove(&from)?;
                false
            }
            Settlement::Waits => {
                durable::rename(&from, &to)?;
                true
            }
            Settlement::TakenAway => return Ok(false),
        };
        durable::sync_directory(&self.place.directory)?;
        if staged.epoch > self.owner.published_epoch {
            self.owner.published_epoch = staged.epoch;
            self.owner.save(&self.place)?;
        }
        Ok(new)
    }
}

/// Where a staged file waits, and where it goes.
fn ends(place: &Place, staged: &StagedFile) -> (PathBuf, PathBuf) {
    (place.staging().join(&staged.staged_name), place.directory.join(&staged.final_name))
}

/// What there is to do for a staged file.
enum Settlement {
    /// Nothing: its part is there.
    Published,
    /// Nothing: it was published before, and taken away by a reader.
    TakenAway,
    /// It gets its part's name.
    Waits,
}

/// Decides that by what is there, or why it cannot be. Asked before a start touches anything, and again when it is
/// carried out; `stays` says whether what has the part's name by then is what has it now.
fn settlement(
    place: &Place,
    staged: &StagedFile,
    published_epoch: u64,
    stays: bool,
) -> Result<Settlement, SinkError> {
    let (from, to) = ends(place, staged);
    let part = if stays { Sum::of(&to)? } else { None };
    match part {
        Some(sum) if sum.is_of(staged) => return Ok(Settlement::Published),
        Some(_) => return Err(SinkError::Conflict { path: to }),
        None => {}
    }
    match Sum::of(&from)? {
        Some(sum) if sum.is_of(staged) => Ok(Settlement::Waits),
        Some(Sum { bytes, crc32 }) => Err(SinkError::Damaged {
            path: from,
            bytes,
            expected_bytes: staged.bytes,
            crc32,
            expected_crc32: staged.crc32,
        }),
        None if staged.epoch <= published_epoch => Ok(Settlement::TakenAway),
        None => Err(SinkError::Missing { path: from, epoch: staged.epoch }),
    }
}

impl Owner {
    /// The bytes of an owner file, for tests.
    #[cfg(all(test, feature = "fault-injection"))]
    pub(super) fn sample(sink: &str, abandoned: Vec<(u64, u64)>) -> Vec<u8> {
        let (sink, look) = (sink.to_owned(), "jsonl key,window_start,window_end".to_owned());
        let owner = Self { sink, lineage: [7; 16], generation: 3, published_epoch: 12, look, abandoned };
        codec::encode(OWNER_MAGIC, OWNER_VERSION, &owner).unwrap_or_default()
    }

    fn load(place: &Place) -> Result<Option<Self>, SinkError> {
        let path = place.staging().join(names::OWNER);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(OWNER_BYTES_MAX).read_to_end(&mut bytes)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SinkError::io("read owner file", path)(error)),
            Ok(_) => {}
        }
        let what = || format!("owner file of an output: path={}", path.display());
        codec::decode(OWNER_MAGIC, OWNER_VERSION, &bytes)
            .map(Some)
            .map_err(|source| SinkError::Decode { what: what(), source })
    }

    fn save(&self, place: &Place) -> Result<(), SinkError> {
        let staging = place.staging();
        let bytes = codec::encode(OWNER_MAGIC, OWNER_VERSION, self)
            .map_err(|source| SinkError::Decode { what: "owner file of an output".to_owned(), source })?;
        durable::replace(&staging.join(names::OWNER), &staging.join("OWNER.tmp"), &bytes)
    }
}

/// What a start would find in an output directory.
#[derive(Clone, Debug)]
pub(crate) struct Peeked {
    /// The lineage that it belongs to.
    pub(crate) lineage: [u8; 16],
    /// Every staged file up to this epoch was published.
    pub(crate) published_epoch: u64,
    /// Parts that are there.
    pub(crate) parts: usize,
}

/// Looks at an output directory and changes nothing; `None` when no run owns it.
pub(crate) fn peek(directory: &Path) -> Result<Option<Peeked>> {
    let place = Place {
        sink: String::new(),
        directory: directory.to_owned(),
        extension: "jsonl",
        look: String::new(),
        preamble: Vec::new(),
    };
    let Some(owner) = Owner::load(&place)? else { return Ok(None) };
    let parts = list(directory)?.iter().filter(|name| names::part_epoch(name).is_some()).count();
    let Owner { lineage, published_epoch, .. } = owner;
    Ok(Some(Peeked { lineage, published_epoch, parts }))
}

/// The newest epoch published in an output directory, by its owner file and its parts; 0 for none, and when it cannot be
/// read, which whoever opens the output reports.
pub(in crate::pipeline) fn newest_published_in(directory: &Path) -> u64 {
    let parts = list(directory).unwrap_or_default().into_iter().filter_map(|name| names::part_epoch(&name));
    let bytes = fs::read(directory.join(names::STAGING).join(names::OWNER)).unwrap_or_default();
    let owner: Option<Owner> = codec::decode(OWNER_MAGIC, OWNER_VERSION, &bytes).ok();
    parts.chain(owner.map(|owner| owner.published_epoch)).max().unwrap_or(0)
}

/// What [`recover`] would do first: the parts that have to go, or why it may not take the directory. Changes nothing.
pub(super) fn preflight(
    place: &Place,
    context: SinkContext,
    header: Option<&[u8]>,
    restored: Restored<'_>,
) -> Result<Vec<String>, SinkError> {
    let due = StagedFile::due(restored, &place.sink)?;
    let found = Found::read(place, context)?;
    let leaving = found.leaving(place, header, restored)?;
    let published = found.published_epoch(context);
    found.abandoned(place, published, restored)?;
    for staged in &due {
        settlement(place, staged, published.min(restored.last_epoch), !leaving.contains(&staged.final_name))?;
    }
    Ok(leaving)
}

/// Puts an output directory in order after a restart and takes hold of it; `header` is the part of epoch 0.
///
/// The order makes each cut repeatable: refuse first, then own (and with it remember what is abandoned), set aside,
/// publish, and sweep last.
pub(super) fn recover(
    place: &Place,
    context: SinkContext,
    header: Option<&[u8]>,
    restored: Restored<'_>,
) -> Result<(Publisher, RecoverReport), SinkError> {
    let due = StagedFile::due(restored, &place.sink)?;
    durable::create_directory(&place.directory)?;
    durable::create_directory(&place.staging())?;
    let lock = lock(&place.staging())?;
    let found = Found::read(place, context)?;
    let mut report = RecoverReport::default();

    let leaving = found.leaving(place, header, restored)?;
    let published = found.published_epoch(context);
    let published_epoch = published.min(restored.last_epoch);
    let owner = Owner {
        sink: place.sink.clone(),
        lineage: context.lineage,
        generation: context.generation,
        published_epoch,
        look: place.look.clone(),
        abandoned: found.abandoned(place, published, restored)?,
    };
    let abandoned = owner.abandoned.iter().map(|&(_, last)| last).max().unwrap_or(0);
    report.newest_epoch = published.max(abandoned);
    // What a failed epoch left of ours may be what fills the disk.
    sweep_open(place, context, &mut report)?;
    if found.owner.as_ref() != Some(&owner) {
        owner.save(place)?;
    }
    set_aside(place, context, &leaving, &mut report)?;
    let mut publisher = Publisher { place: place.clone(), owner, _lock: lock };
    if let Some(header) = header {
        publish_header(place, header)?;
    }
    for staged in due {
        if publisher.settle(&staged)? {
            report.published.push(staged.final_name);
        }
    }
    sweep(place, context, &mut report)?;
    Ok((publisher, report))
}

pub(super) fn lock(staging: &Path) -> Result<File, SinkError> {
    let path = staging.join(names::LOCK);
    let options = fs::OpenOptions::new().write(true).create(true).truncate(false).to_owned();
    let file = options.open(&path).map_err(SinkError::io("open lock file", &path))?;
    let mut attempts = 0;
    loop {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            // A process that is just ending, or a child between its fork and its exec, lets go in a moment.
            Err(rustix::io::Errno::WOULDBLOCK) if attempts < LOCK_ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(SinkError::Locked { path: staging.parent().unwrap_or(staging).to_owned() });
            }
            Err(errno) => return Err(SinkError::io("lock output directory", path)(errno.into())),
        }
    }
}

/// The directory as it was found.
#[derive(Debug)]
struct Found {
    parts: Vec<(u64, String)>,
    owner: Option<Owner>,
    ours: bool,
}

impl Found {
    fn read(place: &Place, context: SinkContext) -> Result<Self, SinkError> {
        let owner = Owner::load(place)?;
        let ours = owner.as_ref().is_none_or(|owner| owner.lineage == context.lineage);
        let staged = list(&place.staging())?.into_iter().filter_map(|name| StagingName::parse(&name));
        let staged = staged.filter(|name| name.is_of(context.lineage)).map(|name| name.generation);
        let owned = owner.iter().filter(|_| ours).map(|owner| owner.generation);
        if let Some(newer) = staged.chain(owned).max().filter(|&newer| newer > context.generation) {
            let path = place.directory.clone();
            return Err(SinkError::Fenced { path, ours: context.generation, newer });
        }
        let parts = list(&place.directory)?;
        let mut parts: Vec<_> =
            parts.into_iter().filter_map(|name| Some((names::part_epoch(&name)?, name))).collect();
        parts.sort();
        Ok(Self { parts, owner, ours })
    }

    /// The last epoch of ours that is known to be published, by the owner file and by the parts.
    fn published_epoch(&self, context: SinkContext) -> u64 {
        let owned = self.owner.iter().filter(|owner| owner.lineage == context.lineage);
        let parts = self.parts.iter().filter(|_| self.ours).map(|&(epoch, _)| epoch);
        owned.map(|owner| owner.published_epoch).chain(parts).max().unwrap_or(0)
    }

    /// Ranges of epochs whose parts are not here any more, this restore's included; or the refusal of a checkpoint of
    /// one of them, whose results would be missing without a word.
    fn abandoned(
        &self,
        place: &Place,
        published: u64,
        restored: Restored<'_>,
    ) -> Result<Vec<(u64, u64)>, SinkError> {
        let Restored { last_epoch, newest_epoch, .. } = restored;
        let owned = self.owner.iter().filter(|_| self.ours);
        let mut abandoned: Vec<(u64, u64)> =
            owned.flat_map(|owner| owner.abandoned.iter().copied()).collect();
        if let Some(&(first, last)) =
            abandoned.iter().find(|(first, last)| (*first..=*last).contains(&last_epoch))
        {
            return Err(SinkError::Abandoned { path: place.directory.clone(), last_epoch, first, last });
        }
        if published > last_epoch {
            abandoned.push((last_epoch.saturating_add(1), published.max(newest_epoch)));
        }
        Ok(abandoned)
    }

    /// The parts that have to go before this run may own the directory, or why it may not.
    fn leaving(
        &self,
        place: &Place,
        header: Option<&[u8]>,
        restored: Restored<'_>,
    ) -> Result<Vec<String>, SinkError> {
        let Restored { last_epoch, ahead, .. } = restored;
        let refuse = ahead == AheadPolicy::Refuse;
        let path = || place.directory.clone();
        if !self.ours {
            // Readers may have taken the parts away; that there were some the owner file knows.
            let published = self.owner.as_ref().map_or(0, |owner| owner.published_epoch);
            // A header alone has told nobody anything.
            let rows = self.parts.iter().any(|&(epoch, _)| epoch > 0);
            if refuse && (rows || published > 0) {
                return Err(SinkError::Foreign { path: path(), parts: self.parts.len() });
            }
            return Ok(self.parts.iter().map(|(_, name)| name.clone()).collect());
        }
        let owned = self.owner.as_ref().map_or(0, |owner| owner.published_epoch);
        let published = self.parts.last().map_or(0, |&(epoch, _)| epoch).max(owned);
        if refuse && published > last_epoch {
            return Err(SinkError::Ahead { path: path(), published, last_epoch });
        }
        if self.owner.as_ref().is_some_and(|owner| owner.look != place.look) && !self.parts.is_empty() {
            if refuse {
                return Err(SinkError::Look { path: path() });
            }
            return Ok(self.parts.iter().map(|(_, name)| name.clone()).collect());
        }
        let mut leaving: Vec<_> = self
            .parts
            .iter()
            .filter(|&&(epoch, _)| epoch > last_epoch)
            .map(|(_, name)| name.clone())
            .collect();
        let old_look = |&&(epoch, ref name): &&(u64, String)| match header {
            Some(header) if epoch == 0 => !holds(&place.directory.join(name), header),
            _ => epoch == 0 || *name != names::part(epoch, place.extension),
        };
        for (_, name) in self.parts.iter().filter(|&&(epoch, _)| epoch <= last_epoch).filter(old_look) {
            if refuse {
                return Err(SinkError::Look { path: place.directory.join(name) });
            }
            leaving.push(name.clone());
        }
        Ok(leaving)
    }
}

fn set_aside(
    place: &Place,
    context: SinkContext,
    leaving: &[String],
    report: &mut RecoverReport,
) -> Result<(), SinkError> {
    if leaving.is_empty() {
        return Ok(());
    }
    let aside = place.directory.join(names::set_aside(context.lineage, context.generation));
    durable::create_directory(&aside)?;
    for name in leaving {
        durable::rename(&place.directory.join(name), &aside.join(name))?;
        report.set_aside.push(name.clone());
    }
    durable::sync_directory(&aside)?;
    durable::sync_directory(&place.directory)
}

fn publish_header(place: &Place, header: &[u8]) -> Result<(), SinkError> {
    let path = place.directory.join(names::part(0, place.extension));
    if holds(&path, header) {
        return Ok(());
    }
    durable::replace(&path, &place.staging().join("HEADER.tmp"), header)
}

fn holds(path: &Path, bytes: &[u8]) -> bool {
    let same_length = fs::metadata(path).is_ok_and(|metadata| metadata.len() == bytes.len() as u64);
    same_length && fs::read(path).is_ok_and(|found| found == bytes)
}

/// Removes what earlier runs of this lineage staged and no manifest kept. Nothing else is ours to remove.
pub(super) fn sweep(
    place: &Place,
    context: SinkContext,
    report: &mut RecoverReport,
) -> Result<(), SinkError> {
    let staging = place.staging();
    for name in list(&staging)? {
        match StagingName::parse(&name) {
            Some(parsed) if parsed.is_of(context.lineage) => {
                durable::remove(&staging.join(&name))?;
                report.swept.push(name);
            }
            Some(_) => report.foreign.push(name),
            None => {}
        }
    }
    Ok(())
}

/// Removes what earlier runs of this lineage were still writing: no manifest can name it.
fn sweep_open(place: &Place, context: SinkContext, report: &mut RecoverReport) -> Result<(), SinkError> {
    let staging = place.staging();
    for name in list(&staging)? {
        let open = StagingName::parse(&name)
            .filter(|parsed| parsed.is_of(context.lineage) && parsed.epoch.is_none());
        if open.is_some() {
            durable::remove(&staging.join(&name))?;
            report.swept.push(name);
        }
    }
    Ok(())
}

/// Names in a directory, sorted, none when it is not there; names that are not UTF-8 are not ours.
pub(super) fn list(directory: &Path) -> Result<Vec<String>, SinkError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(SinkError::io("list output directory", directory))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(SinkError::io("list output directory", directory))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Size and checksum of a file.
struct Sum {
    bytes: u64,
    crc32: u32,
}

impl Sum {
    fn of(path: &Path) -> Result<Option<Self>, SinkError> {
        // A pipe would not be opened before somebody writes to it.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(SinkError::NoFile { path: path.to_owned() });
        }
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(SinkError::io("read output file", path))?,
        };
        let (mut crc, mut bytes) = (crc32fast::Hasher::new(), 0);
        let mut chunk = vec![0; 256 * 1024];
        loop {
            match file.read(&mut chunk).map_err(SinkError::io("read output file", path))? {
                0 => return Ok(Some(Self { bytes, crc32: crc.finalize() })),
                read => {
                    crc.update(&chunk[..read]);
                    bytes += read as u64;
                }
            }
        }
    }

    fn is_of(&self, staged: &StagedFile) -> bool {
        self.bytes == staged.bytes && self.crc32 == staged.crc32
    }
}
