//! Bringing ranges of files into the page cache before they are sent, so that no reactor waits for the disk: a thread
//! reads what is not there, and the connection goes on when it is.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::fs::Advice;
use rustix::io::{ReadWriteFlags, preadv2};
use tokio::task::JoinHandle;

/// Bytes that are looked for at once.
const PROBED: u64 = 1 << 20;
/// Distance between the bytes that are looked at, and bytes that are asked of the disk at once: what Linux reads ahead by itself,
/// so pages come and go in such runs.
const STRIDE: u64 = 128 << 10;
/// Bytes that a thread brings in before sending goes on.
const AHEAD: u64 = 4 << 20;

/// What is known of the file range that a connection is about to send.
#[derive(Debug, Default)]
pub(crate) struct Warmth {
    /// Bytes from the place on where sending goes on that are in the page cache.
    warm: u64,
    /// A thread that makes so many bytes warm.
    reading: Option<(JoinHandle<()>, u64)>,
}

impl Warmth {
    /// How many of the next bytes can be sent without waiting for the disk, at least one; pending while a thread reads
    /// them. A read that fails is no news: sending will fail too.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, file: &Arc<File>, position: u64, len: u64) -> Poll<u64> {
        if self.reading.is_none() && self.warm == 0 {
            let probed = len.min(PROBED);
            if is_cached(file, position, probed) {
                self.warm = probed;
            } else {
                let (file, ahead) = (Arc::clone(file), len.min(AHEAD));
                self.reading = Some((tokio::task::spawn_blocking(move || read(&file, position, ahead)), ahead));
            }
        }
        if let Some((thread, ahead)) = &mut self.reading {
            // A panic of the thread is no news either.
            let _ = ready!(Pin::new(thread).poll(cx));
            self.warm = *ahead;
            self.reading = None;
        }
        Poll::Ready(self.warm)
    }

    /// So many bytes were sent.
    pub(crate) fn sent(&mut self, count: u64) {
        self.warm = self.warm.saturating_sub(count);
    }
}

/// Whether a read of this range would not wait, as far as some of its bytes tell. A file system that can't say so
/// counts as one that waits.
fn is_cached(file: &File, position: u64, len: u64) -> bool {
    let mut byte = [0];
    let is_there = |at| preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT).is_ok();
    probes(position, len).all(is_there)
}

/// The places that tell of a range.
fn probes(position: u64, len: u64) -> impl Iterator<Item = u64> {
    let last = position + len - 1;
    (position..last).step_by(STRIDE as usize).chain([last])
}

/// Brings a range into the page cache, without a copy: all of it is asked for before any of it is waited for.
fn read(file: &File, position: u64, len: u64) {
    let end = position + len;
    for at in (position..end).step_by(STRIDE as usize) {
        let _ = rustix::fs::fadvise(file, at, std::num::NonZero::new(STRIDE.min(end - at)), Advice::WillNeed);
    }
    // What can't be read is found out again by who sends it.
    let _ = probes(position, len).try_for_each(|at| file.read_exact_at(&mut [0], at));
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::fadvise;

    use super::*;

    const LEN: u64 = 3 << 20;

    /// A file on a disk that is written back and dropped from the page cache.
    fn cold_file() -> Arc<File> {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![7; LEN as usize]).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        Arc::new(file)
    }

    #[test]
    fn a_range_is_warm_once_a_thread_has_read_it() {
        let runtime = crate::reactor::runtime().unwrap();
        let file = cold_file();
        assert!(!is_cached(&file, 4097, LEN - 4097));
        let mut warmth = Warmth::default();
        runtime.block_on(async {
            let warm = std::future::poll_fn(|cx| warmth.poll(cx, &file, 4097, LEN - 4097)).await;
            assert_eq!(warm, LEN - 4097);
        });
        assert!(is_cached(&file, 4097, LEN - 4097));
        warmth.sent(1000);
        assert_eq!(warmth.warm, LEN - 5097);
    }

    #[test]
    fn what_is_in_the_page_cache_is_sent_at_once_a_probe_at_a_time() {
        let file = cold_file();
        read(&file, 0, LEN);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut warmth = Warmth::default();
        let mut position = 0;
        for expected in [PROBED, PROBED, PROBED - 5, 5] {
            let len = if expected == 5 { 5 } else { LEN - position - 5 };
            let Poll::Ready(warm) = warmth.poll(&mut cx, &file, position, len) else { panic!("nothing is to be read") };
            assert_eq!(warm, expected);
            warmth.sent(warm);
            position += warm;
        }
        assert_eq!(position, LEN);
    }

    #[test]
    fn a_page_that_is_missing_inside_of_a_range_is_seen() {
        let file = cold_file();
        read(&file, 0, LEN);
        fadvise(&*file, 1 << 20, std::num::NonZero::new(1 << 20), Advice::DontNeed).unwrap();
        assert!(is_cached(&file, 0, 1 << 20));
        assert!(!is_cached(&file, 0, LEN));
        assert!(!is_cached(&file, (1 << 20) - 4096, 8192));
    }
}
