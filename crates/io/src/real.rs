//! The operating system's disk. Linux calls are made through `rustix`; interrupted and short calls are continued here, so that
//! callers see whole writes or an error.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::Errno;

use crate::disk::{Disk, DiskLock, Entry, File, Metadata, OpenMode};

/// Most buffers that one `pwritev` takes.
const IOV_MAX: usize = 1024;

/// The operating system's file system.
#[derive(Debug, Default, Clone)]
pub struct RealDisk {
    /// Lock files held through this disk: POSIX record locks do not exclude their own process.
    held: Arc<Mutex<HashSet<PathBuf>>>,
}

impl RealDisk {
    /// The file system of this machine.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::Create => options.write(true).create(true).truncate(false),
            OpenMode::CreateNew => options.write(true).create_new(true),
        };
        Ok(Arc::new(RealFile(Arc::new(options.open(path)?))))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = fs::read_dir(dir)?
            .map(|entry| {
                let entry = entry?;
                let kind = entry.file_type()?;
                let is_dir = if kind.is_symlink() { entry.path().is_dir() } else { kind.is_dir() };
                Ok(Entry { name: entry.file_name().to_string_lossy().into_owned(), is_dir })
            })
            .collect::<io::Result<Vec<_>>>()?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(Some(Metadata { is_dir: true, len: 0 })),
            Ok(found) => Ok(Some(Metadata { is_dir: false, len: found.len() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let since = fs::metadata(path)?.modified()?.duration_since(std::time::UNIX_EPOCH);
        Ok(since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
    }

    fn set_read_only(&self, path: &Path) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(0o400))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(path)?)?)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        // Opening comes after the look into the table: closing any handle of the file would drop the lock that is held.
        let key = std::path::absolute(path)?;
        if !self.held.lock().insert(key.clone()) {
            return Ok(None);
        }
        match take(path) {
            Ok(Some(file)) => Ok(Some(Box::new(RealLock { file, path: key, held: Arc::clone(&self.held) }))),
            other => {
                self.held.lock().remove(&key);
                other.map(|_| None)
            }
        }
    }
}

/// Locks a file, which is made if there is none; `None` when another process holds it.
fn take(path: &Path) -> io::Result<Option<fs::File>> {
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::ACCESS | Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        // Who held it may have removed it meanwhile, and another one is there or will be.
        if is_at(&file, path)? {
            return Ok(Some(file));
        }
    }
}

/// Whether an open file is the one at a path.
fn is_at(file: &fs::File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A held lock file.
#[derive(Debug)]
struct RealLock {
    file: fs::File,
    path: PathBuf,
    held: Arc<Mutex<HashSet<PathBuf>>>,
}

impl DiskLock for RealLock {
    fn sync_file_system(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.file)?)
    }

    fn release(self: Box<Self>) -> io::Result<()> {
        // While it is locked: after that, another process may hold a lock on this very file.
        let removed = match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        rustix::fs::fcntl_lock(&self.file, FlockOperation::NonBlockingUnlock)?;
        removed
    }
}

impl Drop for RealLock {
    fn drop(&mut self) {
        self.held.lock().remove(&self.path);
    }
}

/// An open file of the operating system.
#[derive(Debug)]
struct RealFile(Arc<fs::File>);

impl RealFile {
    /// Writes what a short or interrupted write of `done` bytes left over, buffer by buffer.
    fn write_rest(&self, bufs: &[IoSlice<'_>], mut done: usize, position: u64) -> io::Result<()> {
        let mut at = position;
        for buf in bufs {
            let skip = done.min(buf.len());
            self.0.write_all_at(&buf[skip..], at + skip as u64)?;
            done -= skip;
            at += buf.len() as u64;
        }
        Ok(())
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.0.read_at(&mut buf[done..], position + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut at = position;
        for bufs in bufs.chunks(IOV_MAX) {
            let want: usize = bufs.iter().map(|buf| buf.len()).sum();
            let done = match rustix::io::pwritev(&*self.0, bufs, at) {
                Ok(done) => done,
                Err(Errno::INTR) => 0,
                Err(errno) => return Err(errno.into()),
            };
            if done < want {
                self.write_rest(bufs, done, at)?;
            }
            at += want as u64;
        }
        Ok(())
    }

    fn skip_hole(&self, position: u64) -> io::Result<Option<u64>> {
        // The cursor that this moves is used by nobody.
        match rustix::fs::seek(&*self.0, SeekFrom::Data(position)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((position < self.len()?).then_some(position)),
            Err(errno) => Err(errno.into()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, position: u64, len: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&*self.0, FallocateFlags::KEEP_SIZE, position, len) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Err(io::ErrorKind::Unsupported.into()),
                result => return Ok(result?),
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn os_file(&self) -> Option<&Arc<fs::File>> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_is_not_at_its_path_even_when_another_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        let file = take(&path).unwrap().unwrap();
        assert!(is_at(&file, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path).unwrap());
        fs::write(&path, []).unwrap();
        assert!(!is_at(&file, &path).unwrap());
        assert!(is_at(&take(&path).unwrap().unwrap(), &path).unwrap());
    }
}
