//! Bytes that no client sends: frames that are cut, changed, or promise more than there is. Connections that behave are
//! served all the while, and memory stays flat. These tests are a binary of their own, and run one after another, because
//! they look at the memory of their process.
#![allow(unreachable_pub, reason = "a test has no public surface; `pub` says what a module offers to the others")]

mod common;

#[path = "suite/transcripts/exchanges.rs"]
mod exchanges;
mod hostile {
    pub mod amplify;
    pub mod batches;
    pub mod bombs;
    pub mod frames;
}

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Panics of the broker's threads, which only end a connection and so would not be noticed.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Kept by the test that runs. In its end it checks that no thread of the broker has panicked.
struct Alone {
    _guard: MutexGuard<'static, ()>,
}

fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    static HOOK: Once = Once::new();
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_broker = std::thread::current().name().is_some_and(|name| !name.contains("::"));
            PANICS.fetch_add(usize::from(is_broker), Ordering::SeqCst);
            default(info);
        }));
    });
    PANICS.store(0, Ordering::SeqCst);
    Alone { _guard: guard }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(PANICS.load(Ordering::SeqCst), 0, "a thread of the broker has panicked");
        }
    }
}

/// A line of this process's status, in bytes: `VmRSS` is what it has in memory, `VmHWM` the most it ever had.
fn memory(line: &str) -> u64 {
    common::memory("/proc/self/status", line)
}
