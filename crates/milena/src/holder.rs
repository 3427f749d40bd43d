//! Who has a log directory: the process that holds the lock on its `.lock`. Asking takes no lock, as a broker may start just now.

use std::path::Path;

use rustix::process::{Flock, FlockType, fcntl_getlk};

/// The id of the process that has the log directory; `None` where nobody has it. 0 is a process that can't be seen from here.
pub fn holder(dir: &Path) -> Option<i32> {
    let lock = std::fs::File::open(dir.join(".lock")).ok()?;
    let held = fcntl_getlk(&lock, &Flock::from(FlockType::WriteLock)).ok()??;
    Some(held.pid.map_or(0, |pid| pid.as_raw_nonzero().get()))
}

/// What to do about a log directory that another process has.
pub fn advice(dir: &Path) -> String {
    match holder(dir) {
        Some(pid) if pid > 0 => {
            format!(
                "Process {pid} has it, most likely a broker: stop that one first, or take another directory (--data-dir)."
            )
        }
        _ => "Most likely a broker runs on it: stop that one first, or take another directory (--data-dir).".to_owned(),
    }
}
