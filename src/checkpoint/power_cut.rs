//! A disk for tests that forgets, at a power cut, what was not synced: contents of files, entries of directories.
//!
//! It works on a real directory, so that reads need no door, and keeps beside it a model of what is durable. It can
//! die at any step, swallow any one sync, or fail one the way Linux does: once, and then never tell again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;

use crate::checkpoint::durable::{Copied, DiskFs, DurableFs, parent};

/// What of the unsynced work is lost at the cut.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    /// All of it.
    Everything,
    /// Entries were written back early, contents not: a rightly named file that is empty.
    Contents,
    /// Contents were written back early, entries not.
    Entries,
    /// Each entry and each file by the toss of a seeded coin; files may also be half written or zeros.
    Random(u64),
}

impl Loss {
    pub(super) const ALL: [Self; 9] = [
        Self::Everything,
        Self::Contents,
        Self::Entries,
        Self::Random(1),
        Self::Random(2),
        Self::Random(3),
        Self::Random(4),
        Self::Random(5),
        Self::Random(6),
    ];

    fn keeps_entry(self, dir: u64, child: u64) -> bool {
        match self {
            Self::Everything | Self::Entries => false,
            Self::Contents => true,
            Self::Random(seed) => toss(seed, dir, child) & 1 == 0,
        }
    }

    fn unsynced_contents(self, inode: u64, now: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Everything | Self::Contents => Vec::new(),
            Self::Entries => now,
            Self::Random(seed) => match toss(seed, inode, 0) % 4 {
                0 => now,
                1 => Vec::new(),
                2 => now[..now.len() / 2].to_vec(),
                _ => vec![0; now.len()],
            },
        }
    }
}

fn toss(seed: u64, a: u64, b: u64) -> u64 {
    mix(seed ^ mix(a ^ mix(b)))
}

/// SplitMix64's finaliser.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[derive(Debug)]
struct Node {
    // Held open so that the number of a removed file is not given to another one.
    handle: File,
    number: u64,
    entries_now: BTreeMap<OsString, u64>,
    entries_durable: BTreeMap<OsString, u64>,
    contents_durable: Option<Vec<u8>>,
    // A sync of it failed: the kernel has forgotten that it was dirty, later syncs do nothing.
    forgotten: bool,
}

#[derive(Debug, Default)]
struct Model {
    nodes: HashMap<u64, Node>,
    // Numbers in order of appearance, so that coins fall alike on every run.
    serials: u64,
    steps: u64,
    syncs: Vec<u64>,
    dead: bool,
}

/// The disk. Everything under `root`, which exists and is empty at first.
#[derive(Debug)]
pub(super) struct PowerCutFs {
    root: u64,
    model: Mutex<Model>,
    /// Steps from this one on fail until [`PowerCutFs::revive`].
    pub(super) die_at: Option<u64>,
    /// This sync reports success and does nothing.
    pub(super) swallow_sync: Option<usize>,
    /// This sync fails, and its data is never durable.
    pub(super) fail_sync: Option<usize>,
}

impl PowerCutFs {
    pub(super) fn new(root: &Path) -> Self {
        let mut model = Model::default();
        let root = model.adopt(root).unwrap();
        Self { root, model: Mutex::new(model), die_at: None, swallow_sync: None, fail_sync: None }
    }

    /// Steps taken so far.
    pub(super) fn steps(&self) -> u64 {
        self.model.lock().unwrap().steps
    }

    /// The step at which each sync so far happened.
    pub(super) fn syncs(&self) -> Vec<u64> {
        self.model.lock().unwrap().syncs.clone()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.model.lock().unwrap().dead
    }

    /// A new process on the same running machine: nothing was lost, and nothing dies any more.
    pub(super) fn revive(&mut self) {
        self.model.lock().unwrap().dead = false;
        self.die_at = None;
    }

    /// Builds under `target` what the disk holds after the power came back.
    pub(super) fn survive(&self, loss: Loss, target: &Path) {
        let model = self.model.lock().unwrap();
        let mut made: HashMap<u64, std::path::PathBuf> = HashMap::new();
        let mut todo = vec![(self.root, target.to_owned())];
        while let Some((inode, path)) = todo.pop() {
            std::fs::create_dir(&path).unwrap();
            for (name, child) in surviving_entries(&model, inode, loss) {
                let (node, path) = (&model.nodes[&child], path.join(name));
                if node.handle.metadata().unwrap().is_dir() {
                    todo.push((child, path));
                } else if let Some(first) = made.get(&child) {
                    std::fs::hard_link(first, path).unwrap();
                } else {
                    let contents = surviving_contents(node, loss);
                    File::create_new(&path).unwrap().write_all(&contents).unwrap();
                    made.insert(child, path);
                }
            }
        }
    }

    fn step<T>(&self, act: impl FnOnce(&mut Model) -> io::Result<T>) -> io::Result<T> {
        let mut model = self.model.lock().unwrap();
        if model.dead || self.die_at.is_some_and(|die_at| model.steps >= die_at) {
            model.dead = true;
            return Err(io::Error::other("the power is off"));
        }
        model.steps += 1;
        act(&mut model)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.step(|model| {
            let (index, step) = (model.syncs.len(), model.steps - 1);
            model.syncs.push(step);
            let inode = number(path)?;
            let node = model.nodes.get_mut(&inode).unwrap();
            if self.fail_sync == Some(index) {
                node.forgotten = true;
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
            }
            if node.forgotten || self.swallow_sync == Some(index) {
                return Ok(());
            }
            node.entries_durable = node.entries_now.clone();
            node.contents_durable = Some(contents_now(node));
            Ok(())
        })
    }
}

fn surviving_entries(model: &Model, dir: u64, loss: Loss) -> BTreeMap<OsString, u64> {
    let node = &model.nodes[&dir];
    let names: BTreeSet<&OsString> = node.entries_durable.keys().chain(node.entries_now.keys()).collect();
    let mut survivors = BTreeMap::new();
    for name in names {
        let (old, new) = (node.entries_durable.get(name), node.entries_now.get(name));
        // One coin per child: a rename shows both names through one child, and so is atomic.
        let Some(&child) = new.or(old) else { continue };
        let kept =
            if old == new || loss.keeps_entry(node.number, model.nodes[&child].number) { new } else { old };
        if let Some(&child) = kept {
            survivors.insert(name.clone(), child);
        }
    }
    survivors
}

fn surviving_contents(node: &Node, loss: Loss) -> Vec<u8> {
    match &node.contents_durable {
        Some(contents) => contents.clone(),
        None if node.forgotten => vec![0; contents_now(node).len()],
        None => loss.unsynced_contents(node.number, contents_now(node)),
    }
}

fn contents_now(node: &Node) -> Vec<u8> {
    let metadata = node.handle.metadata().unwrap();
    if metadata.is_dir() {
        return Vec::new();
    }
    let mut bytes = vec![0; usize::try_from(metadata.len()).unwrap()];
    node.handle.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn number(path: &Path) -> io::Result<u64> {
    Ok(std::fs::symlink_metadata(path)?.ino())
}

impl Model {
    fn adopt(&mut self, path: &Path) -> io::Result<u64> {
        let (handle, inode) = (File::open(path)?, number(path)?);
        self.serials += 1;
        let node = Node {
            handle,
            number: self.serials,
            entries_now: BTreeMap::new(),
            entries_durable: BTreeMap::new(),
            contents_durable: None,
            forgotten: false,
        };
        self.nodes.entry(inode).or_insert(node);
        Ok(inode)
    }

    fn enter(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.adopt(path)?;
        let dir = self.nodes.get_mut(&number(parent(path))?).unwrap();
        dir.entries_now.insert(path.file_name().unwrap().to_owned(), inode);
        Ok(())
    }

    fn leave(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.nodes.get_mut(&number(parent(path))?).unwrap();
        dir.entries_now.remove(path.file_name().unwrap());
        Ok(())
    }
}

impl DurableFs for PowerCutFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|model| {
            DiskFs.create_dir(path)?;
            model.enter(path)
        })
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.step(|model| {
            DiskFs.write_new(path, bytes)?;
            model.enter(path)
        })
    }

    fn copy_new(&self, from: &Path, to: &Path) -> io::Result<Copied> {
        self.step(|model| {
            let copied = DiskFs.copy_new(from, to)?;
            model.enter(to)?;
            Ok(copied)
        })
    }

    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        self.step(|model| {
            DiskFs.hard_link(original, link)?;
            model.enter(link)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|model| {
            DiskFs.rename(from, to)?;
            model.leave(from)?;
            model.enter(to)
        })
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.sync(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.sync(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        // The lock file is no part of the durable state and unknown here.
        self.step(|model| {
            DiskFs.remove_file(path)?;
            model.leave(path)
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|model| {
            DiskFs.remove_dir(path)?;
            model.leave(path)
        })
    }
}
