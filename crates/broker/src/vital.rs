//! Threads that a node can't go on without: a panic in one ends the node. The next start recovers.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::storage::{Failures, Fatal};

/// Tells of a panic when the thread ends with it.
struct Watch {
    failures: Arc<Failures>,
    thread: &'static str,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(thread = self.thread, "a thread that the broker can't go on without has panicked");
            self.failures.end(Fatal::Panic { thread: self.thread });
        }
    }
}

/// Starts such a thread.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn spawn<R: Send + 'static>(
    failures: &Arc<Failures>,
    thread: &'static str,
    run: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    let watch = Watch { failures: Arc::clone(failures), thread };
    thread::Builder::new().name(thread.into()).spawn(move || {
        let _watch = watch;
        run()
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_panic_of_a_vital_thread_ends_the_node() {
        let failures = Failures::new(Path::new("/a"));
        assert_eq!(spawn(&failures, "sound", || 7).unwrap().join().unwrap(), 7);
        assert_eq!(failures.fatal().borrow().clone(), None);
        assert!(spawn(&failures, "bad", || panic!("as the test wants it")).unwrap().join().is_err());
        assert_eq!(failures.fatal().borrow().clone(), Some(Fatal::Panic { thread: "bad" }));
    }
}
