//! When the thread of the coordinators wakes. Setting a deadline that is not before the one it sleeps until costs one
//! load.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The thread looks at everything, so every deadline must be told to it.
const AWAKE: i64 = i64::MAX;

/// Wakes one thread.
pub(super) struct Alarm {
    /// Until when the thread sleeps, in ticks.
    until: AtomicI64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A deadline has come that the thread may not have seen.
    rung: bool,
    stopped: bool,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { until: AtomicI64::new(AWAKE), state: Mutex::default(), changed: Condvar::new() }
    }
}

impl Alarm {
    /// There is a deadline at `at` ticks.
    pub(super) fn ring(&self, at: i64) {
        if at >= self.until.load(Ordering::Acquire) {
            return;
        }
        self.state.lock().rung = true;
        self.changed.notify_one();
    }

    /// The thread begins to look at everything; false when it is to end.
    pub(super) fn begin(&self) -> bool {
        self.until.store(AWAKE, Ordering::Release);
        let mut state = self.state.lock();
        state.rung = false;
        !state.stopped
    }

    /// The thread sleeps for `delay_ms`, until `until` ticks, or until there is an earlier deadline.
    pub(super) fn sleep(&self, delay_ms: Option<i64>, until: Option<i64>) {
        let mut state = self.state.lock();
        if state.rung || state.stopped {
            return;
        }
        self.until.store(until.unwrap_or(AWAKE), Ordering::Release);
        match delay_ms {
            Some(delay_ms) => {
                let delay = Duration::from_millis(u64::try_from(delay_ms).unwrap_or(0));
                self.changed.wait_for(&mut state, delay);
            }
            None => self.changed.wait(&mut state),
        }
    }

    /// The thread ends.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rings_while_the_thread_looks_keeps_it_awake() {
        let alarm = Alarm::default();
        assert!(alarm.begin());
        alarm.ring(5);
        // Would sleep for ever otherwise.
        alarm.sleep(None, None);
        assert!(alarm.begin());
        alarm.stop();
        alarm.sleep(None, None);
        assert!(!alarm.begin());
    }

    #[test]
    fn only_an_earlier_deadline_wakes() {
        let alarm = std::sync::Arc::new(Alarm::default());
        assert!(alarm.begin());
        let sleeper = std::sync::Arc::clone(&alarm);
        let thread = std::thread::spawn(move || sleeper.sleep(Some(i64::MAX), Some(100)));
        while alarm.until.load(Ordering::Acquire) == AWAKE {
            std::thread::yield_now();
        }
        alarm.ring(100);
        assert!(!alarm.state.lock().rung);
        alarm.ring(99);
        thread.join().unwrap();
        assert!(alarm.state.lock().rung);
    }
}
