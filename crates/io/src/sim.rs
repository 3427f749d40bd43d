//! A deterministic disk in memory that loses power on demand. Every mutating call is a numbered step; a crash, an I/O error or a full
//! disk can be put at any of them. What survives a crash is decided by the seed, within the contract of [`Disk`].

mod crash;
mod inode;
mod tree;

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::disk::{Disk, DiskLock, Entry, File, Metadata, OpenMode};
use crate::rng::{Rng, SimRng};
use inode::{Content, InodeId};
use tree::Tree;

/// What a step does; faults can be narrowed to one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// A file or directory is made by opening or by `create_dir`.
    Create,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::remove_file`] or [`Disk::remove_dir_all`].
    Remove,
    /// [`File::write_vectored_at`].
    Write,
    /// [`File::truncate`].
    Truncate,
    /// [`File::allocate`].
    Allocate,
    /// [`File::sync_data`] or [`File::sync_all`].
    Sync,
    /// [`Disk::sync_dir`].
    SyncDir,
    /// [`Disk::sync_file_system`].
    SyncFileSystem,
    /// [`File::read_at`]; not a numbered step.
    Read,
}

/// How a fault shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The device fails: EIO.
    Io,
    /// No space is left: ENOSPC. A write may have left a prefix behind.
    NoSpace,
}

impl FaultKind {
    fn error(self) -> io::Error {
        use rustix::io::Errno;
        let errno = match self {
            FaultKind::Io => Errno::IO,
            FaultKind::NoSpace => Errno::NOSPC,
        };
        io::Error::from_raw_os_error(errno.raw_os_error())
    }
}

/// An error that the disk gives from now on, until [`SimDisk::clear_faults`].
#[derive(Debug, Clone)]
pub struct Fault {
    /// How it shows.
    pub kind: FaultKind,
    /// Which calls it hits.
    pub on: StepKind,
    /// Only paths that contain this; empty for all. A file counts under the name that it was opened by.
    pub path_contains: String,
    /// How many calls it hits before it is gone.
    pub times: u64,
}

/// The disk. Clones share it, as processes share a machine's disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// Something is held no more.
    released: Arc<Condvar>,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    rng: SimRng,
    steps: u64,
    crash_at: Option<u64>,
    fail_at: Option<(u64, FaultKind)>,
    crashed: bool,
    /// Counts power cycles; handles of an earlier life are dead.
    life: u64,
    faults: Vec<Fault>,
    locks: Vec<std::path::PathBuf>,
    trace: Vec<String>,
    /// What takes until it is released, on paths that contain a text.
    holds: Vec<(StepKind, String)>,
    /// Calls that take.
    held: Vec<StepKind>,
    /// The machine's clock, ms since 1970.
    now_ms: i64,
}

impl SimDisk {
    /// An empty disk. The same seed and the same calls give the same crashes.
    pub fn new(seed: u64) -> Self {
        let state = State {
            tree: Tree::new(),
            rng: SimRng::new(seed),
            steps: 0,
            crash_at: None,
            fail_at: None,
            crashed: false,
            life: 0,
            faults: Vec::new(),
            locks: Vec::new(),
            trace: Vec::new(),
            holds: Vec::new(),
            held: Vec::new(),
            now_ms: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), released: Arc::default() }
    }

    /// Sets the clock by which files are stamped, ms since 1970; it stands still until the next call.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.state.lock().now_ms = now_ms;
    }

    /// Mutating calls so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// Power fails in the middle of the step of this number (the first step is 1); `None` takes it back.
    pub fn crash_at(&self, step: Option<u64>) {
        self.state.lock().crash_at = step;
    }

    /// The step of this number fails, and no other (the first step is 1); `None` takes it back.
    pub fn fail_at(&self, step: Option<(u64, FaultKind)>) {
        self.state.lock().fail_at = step;
    }

    /// Whether power has failed; every call gives an error until [`restart`](Self::restart).
    pub fn has_crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// Power fails now if it has not, and comes back: what was not synced is kept, lost, torn or reordered as the seed decides.
    /// Handles and locks from before are dead.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        let State { tree, rng, .. } = &mut *state;
        crash::lose_power(tree, rng);
        state.new_life();
    }

    /// The process dies, the machine does not: everything written stays, handles and locks from before are dead.
    pub fn kill_process(&self) {
        let mut state = self.state.lock();
        state.new_life();
    }

    /// Adds a fault.
    pub fn fail(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// From now on syncs of files, or reads, take until they are [released](Self::release). A sync makes durable what was written before it began.
    pub fn hold(&self, kind: StepKind) {
        self.hold_where(kind, "");
    }

    /// As [`hold`](Self::hold), of the files only whose paths contain this.
    pub fn hold_where(&self, kind: StepKind, path_contains: &str) {
        assert!(matches!(kind, StepKind::Sync | StepKind::Read), "{kind:?} can't be held");
        self.state.lock().holds.push((kind, path_contains.to_owned()));
    }

    /// Lets those go on that are held, and those to come.
    pub fn release(&self, kind: StepKind) {
        self.state.lock().holds.retain(|(held, _)| *held != kind);
        self.released.notify_all();
    }

    /// How many calls are held.
    pub fn held(&self, kind: StepKind) -> usize {
        self.state.lock().held.iter().filter(|held| **held == kind).count()
    }

    fn wait_while_held(&self, state: &mut MutexGuard<'_, State>, kind: StepKind, path: &str) {
        let is_held = |state: &State| state.holds.iter().any(|(held, part)| *held == kind && path.contains(part));
        state.held.push(kind);
        while is_held(state) {
            self.released.wait(state);
        }
        let at = state.held.iter().position(|held| *held == kind);
        state.held.swap_remove(at.expect("it was put there above, and each takes one away"));
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Flips one bit of a file, durably. Panics if the file or the byte does not exist.
    pub fn flip_bit(&self, path: &Path, byte: u64, bit: u8) {
        let mut state = self.state.lock();
        let content = state.tree.file_mut(path).expect("a bit is flipped in a file that exists");
        content.flip_bit(byte as usize, bit);
    }

    /// The steps since the beginning, one line each: for messages of failed tests.
    pub fn trace(&self) -> Vec<String> {
        self.state.lock().trace.clone()
    }

    fn handle(&self, state: &State, inode: InodeId, path: &Path, writable: bool) -> Arc<dyn File> {
        let path = path.to_string_lossy().into_owned();
        Arc::new(SimFile { disk: self.clone(), inode, path, writable, life: state.life })
    }
}

impl State {
    fn new_life(&mut self) {
        self.crashed = false;
        self.crash_at = None;
        self.life += 1;
        self.locks.clear();
    }

    fn alive(&self) -> io::Result<()> {
        if self.crashed { Err(power_is_off()) } else { Ok(()) }
    }

    fn fault(&mut self, kind: StepKind, path: &str) -> io::Result<()> {
        let hit = self.faults.iter_mut().find(|fault| fault.on == kind && path.contains(&fault.path_contains));
        let Some(fault) = hit else { return Ok(()) };
        let error = fault.kind.error();
        fault.times = fault.times.saturating_sub(1);
        self.faults.retain(|fault| fault.times > 0);
        Err(error)
    }

    /// Counts a step. `Ok(true)` when power fails in its middle: the caller applies a part of it, or nothing.
    fn step(&mut self, kind: StepKind, path: &str) -> io::Result<bool> {
        self.alive()?;
        self.steps += 1;
        self.trace.push(format!("{:5} {kind:?} {path}", self.steps));
        if self.crash_at == Some(self.steps) {
            self.crashed = true;
            return Ok(true);
        }
        if let Some((step, kind)) = self.fail_at
            && step == self.steps
        {
            return Err(kind.error());
        }
        self.fault(kind, path).map(|()| false)
    }

    /// A step on names, which happens wholly or, when power fails, wholly or not at all.
    fn name_step(
        &mut self,
        kind: StepKind,
        path: &Path,
        apply: impl FnOnce(&mut Tree) -> io::Result<()>,
    ) -> io::Result<()> {
        let crashing = self.step(kind, &path.to_string_lossy())?;
        if crashing && self.rng.below(2) == 0 {
            return Err(power_is_off());
        }
        let applied = apply(&mut self.tree);
        if crashing { Err(power_is_off()) } else { applied }
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("the simulated power is off")
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        state.alive()?;
        let found = match state.tree.lookup_file(path) {
            Ok(inode) if mode == OpenMode::CreateNew => {
                let _ = inode;
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Ok(inode) => inode,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(error) if matches!(mode, OpenMode::Read | OpenMode::Write) => return Err(error),
            Err(_) => {
                state.name_step(StepKind::Create, path, |tree| tree.create_file(path))?;
                state.tree.lookup_file(path)?
            }
        };
        Ok(self.handle(&state, found, path, mode != OpenMode::Read))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.state.lock().name_step(StepKind::Create, path, |tree| tree.create_dir(path))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
            match self.metadata(dir)? {
                Some(found) if found.is_dir => break,
                Some(_) => return Err(io::ErrorKind::AlreadyExists.into()),
                None => missing.push(dir),
            }
        }
        missing.into_iter().rev().try_for_each(|dir| self.create_dir(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state.lock().name_step(StepKind::Rename, to, |tree| tree.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.state.lock().name_step(StepKind::Remove, path, |tree| tree.remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        // As on a real disk, the names inside go one after another; a crash may come between any two.
        for entry in self.list(path)? {
            let inside = path.join(&entry.name);
            if entry.is_dir { self.remove_dir_all(&inside)? } else { self.remove_file(&inside)? }
        }
        self.state.lock().name_step(StepKind::Remove, path, |tree| tree.remove_empty_dir(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let state = self.state.lock();
        state.alive()?;
        state.tree.list(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let state = self.state.lock();
        state.alive()?;
        state.tree.metadata(path)
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let state = self.state.lock();
        state.alive()?;
        state.tree.modified_ms(path)
    }

    /// Permissions are not simulated: a file that is made read-only stays writable.
    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        if self.metadata(path)?.is_some() { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.step(StepKind::SyncDir, &dir.to_string_lossy())? {
            return Err(power_is_off());
        }
        state.tree.sync_dir(dir)
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.step(StepKind::SyncFileSystem, &path.to_string_lossy())? {
            return Err(power_is_off());
        }
        state.tree.sync_all();
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.open(path, OpenMode::Create)?;
        let mut state = self.state.lock();
        if state.locks.iter().any(|held| held == path) {
            return Ok(None);
        }
        state.locks.push(path.to_owned());
        let life = state.life;
        Ok(Some(Box::new(SimLock { disk: self.clone(), path: path.to_owned(), life })))
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    path: std::path::PathBuf,
    life: u64,
}

impl DiskLock for SimLock {
    fn sync_file_system(&self) -> io::Result<()> {
        self.disk.sync_file_system(&self.path)
    }

    fn release(self: Box<Self>) -> io::Result<()> {
        match self.disk.remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.life == self.life {
            state.locks.retain(|held| *held != self.path);
        }
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: InodeId,
    path: String,
    writable: bool,
    life: u64,
}

impl SimFile {
    /// Waits while syncs are held. Gives the number of the last change before it began.
    fn begin_sync(&self) -> u64 {
        let mut state = self.disk.state.lock();
        let newest = state.tree.content_mut(self.inode).newest();
        self.disk.wait_while_held(&mut state, StepKind::Sync, &self.path);
        newest
    }

    fn look<T>(&self, look: impl FnOnce(&Content) -> T) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        state.alive()?;
        if state.life != self.life {
            return Err(power_is_off());
        }
        Ok(look(state.tree.content_mut(self.inode)))
    }

    fn change<T>(&self, kind: StepKind, change: impl FnOnce(&mut Content, &mut SimRng, Outcome) -> T) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        if state.life != self.life {
            return Err(power_is_off());
        }
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let step = state.step(kind, &self.path);
        let outcome = match &step {
            Ok(false) => Outcome::Done,
            Ok(true) => Outcome::PowerOff,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Outcome::NoSpace,
            Err(_) => return step.map(|_| unreachable!("the step failed")),
        };
        let State { tree, rng, now_ms, .. } = &mut *state;
        let content = tree.content_mut(self.inode);
        if matches!(kind, StepKind::Write | StepKind::Truncate) {
            content.modified_ms = *now_ms;
        }
        let value = change(content, rng, outcome);
        match step? {
            false => Ok(value),
            true => Err(power_is_off()),
        }
    }
}

/// How far a step on a file's content gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    PowerOff,
    NoSpace,
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.disk.state.lock();
        self.disk.wait_while_held(&mut state, StepKind::Read, &self.path);
        state.alive()?;
        if state.life != self.life {
            return Err(power_is_off());
        }
        state.fault(StepKind::Read, &self.path)?;
        Ok(state.tree.content_mut(self.inode).read(buf, position))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut bytes = bufs.iter().map(|buf| &buf[..]).collect::<Vec<_>>().concat();
        self.change(StepKind::Write, |content, rng, outcome| {
            if outcome != Outcome::Done {
                bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            }
            content.write(position, bytes);
        })
    }

    fn skip_hole(&self, position: u64) -> io::Result<Option<u64>> {
        self.look(|content| content.skip_zeros(position))
    }

    fn len(&self) -> io::Result<u64> {
        self.look(|content| content.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.change(StepKind::Truncate, |content, rng, outcome| {
            if outcome == Outcome::Done || (outcome == Outcome::PowerOff && rng.below(2) == 0) {
                content.truncate(len);
            }
        })
    }

    fn allocate(&self, _position: u64, _len: u64) -> io::Result<()> {
        self.change(StepKind::Allocate, |_, _, _| ())
    }

    fn sync_data(&self) -> io::Result<()> {
        let newest = self.begin_sync();
        self.change(StepKind::Sync, |content, _, outcome| {
            if outcome == Outcome::Done {
                content.sync_to(newest);
            }
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn os_file(&self) -> Option<&Arc<std::fs::File>> {
        None
    }
}
