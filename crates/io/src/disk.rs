//! The contract between the logs and a disk. Every implementation passes the one conformance suite in `tests/conformance.rs`.
//! Sockets and the clock are elsewhere.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

/// How [`Disk::open`] opens a file. Nothing is ever truncated by opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// For reading and writing; made empty if it does not exist.
    Create,
    /// For reading and writing; fails with `AlreadyExists` if it exists.
    CreateNew,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// A directory; everything else counts as a file.
    pub is_dir: bool,
    /// Length in bytes; 0 for directories.
    pub len: u64,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name without its directory. Names that are not UTF-8 are given lossily and so cannot be opened.
    pub name: String,
    /// A directory; everything else counts as a file.
    pub is_dir: bool,
}

/// A file system as the logs need it: names, files, and what survives a power loss.
///
/// Durability: bytes survive once [`File::sync_data`] or [`File::sync_all`] returned. A name's creation, removal or renaming survives once
/// [`Disk::sync_dir`] returned for its directory (for both directories if a rename crosses them); before that it may or may not survive,
/// but the changes in one directory survive in the order in which they were made. A rename replaces its target in one step: after a
/// crash the target name has the old content or the new, never neither.
///
/// A failed sync says that earlier writes may be lost for good; calling it again proves nothing.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Opens or makes a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Makes one directory; `AlreadyExists` if the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory and those above it that are missing.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or directory another name, replacing a file of that name in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name; open handles go on working.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with everything in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;

    /// What a name stands for; `None` if there is nothing.
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>>;

    /// When a file's content was last changed, ms since 1970 by the machine's clock.
    fn modified_ms(&self, path: &Path) -> io::Result<i64>;

    /// Leaves only the owner's permission to read a file (mode 0400). Handles that are open for writing go on writing.
    fn set_read_only(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes everything durable that was changed before on the file system that holds `path`, bytes and names: cheaper than many single
    /// syncs.
    fn sync_file_system(&self, path: &Path) -> io::Result<()>;

    /// Takes the exclusive lock of a lock file, which is made if missing; `None` if another holds it. Never waits.
    ///
    /// The real disk takes a POSIX record lock, the one that Java's `FileChannel` takes, so that Kafka and this process exclude each other.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;
}

/// A lock of [`Disk::lock`]; dropping it releases it and leaves the file.
pub trait DiskLock: Send + Sync + std::fmt::Debug {
    /// As [`Disk::sync_file_system`] of the lock file. It also fails when anything on that file system could not be written back since the
    /// lock was taken: an operating system tells each open file once.
    fn sync_file_system(&self) -> io::Result<()>;

    /// Releases the lock and removes its file, as Kafka does at an orderly stop.
    fn release(self: Box<Self>) -> io::Result<()>;
}

/// Whether a call failed because the process, or the machine, may not have more files open.
pub fn is_out_of_files(error: &io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|errno| errno == Errno::MFILE || errno == Errno::NFILE)
}

/// Whether an error says that the disk does not do what it must, so that nothing on it is to be trusted any more.
///
/// A lack of space, of open files or of memory says nothing about the disk, and a file that is too short was made so by somebody.
pub fn is_disk_failure(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull, UnexpectedEof};
    let passes = [FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull, UnexpectedEof].contains(&error.kind());
    !passes && !is_out_of_files(error)
}

/// An open file. All positions are bytes from its beginning; there is no cursor.
///
/// Shared handles are used from several threads at once; writers agree among themselves.
#[allow(clippy::len_without_is_empty, reason = "a length that may fail to be read is no collection's")]
pub trait File: Send + Sync + std::fmt::Debug {
    /// Reads into `buf` from `position` on. Fewer bytes than asked for come back only at the end of the file.
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all buffers one after another from `position` on; the file grows as needed.
    ///
    /// # Errors
    /// Any prefix may have been written, and the file may have grown.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], position: u64) -> io::Result<()>;

    /// Where reading may go on without missing anything: every byte from `position` up to there is zero. `None` when only zeros follow, or
    /// nothing. It is `position` itself where the file system does not know better.
    fn skip_hole(&self, position: u64) -> io::Result<Option<u64>>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Sets the length: cuts, or grows with zeros. Also gives back what [`allocate`](File::allocate) reserved behind the end.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Reserves space for `position..position + len` without changing the length. `Unsupported` where the file system cannot.
    fn allocate(&self, position: u64, len: u64) -> io::Result<()>;

    /// Makes the bytes and the length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the bytes and all metadata durable.
    fn sync_all(&self) -> io::Result<()>;

    /// The operating system's file, where there is one: for `sendfile`.
    fn os_file(&self) -> Option<&Arc<std::fs::File>>;
}

/// What is made of a [`File`]'s few operations.
pub trait FileExt: File {
    /// Writes one buffer; as [`File::write_vectored_at`].
    fn write_at(&self, buf: &[u8], position: u64) -> io::Result<()> {
        self.write_vectored_at(&[IoSlice::new(buf)], position)
    }

    /// Fills `buf` from `position` on.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], position: u64) -> io::Result<()> {
        if self.read_at(buf, position)? == buf.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The whole content, of at most `limit` bytes.
    ///
    /// # Errors
    /// `FileTooLarge` when there is more; it is not read.
    fn read_all(&self, limit: u64) -> io::Result<Vec<u8>> {
        let len = self.len()?;
        if len > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?];
        let read = self.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

impl<F: File + ?Sized> FileExt for F {}
