//! Time as a trait: the machine's, and one that a test moves.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock, which may jump, and a monotonic one, which may not.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Milliseconds since 1970 (UTC). May go backwards.
    fn now_ms(&self) -> i64;

    /// Time since some fixed moment of this process. Never goes backwards.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug, Clone)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// Its monotonic time counts from now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        }
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct SimClock {
    wall_ms: AtomicI64,
    monotonic_ns: AtomicU64,
}

impl SimClock {
    /// A clock whose wall time is `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        Self { wall_ms: AtomicI64::new(now_ms), monotonic_ns: AtomicU64::new(0) }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        self.wall_ms.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.monotonic_ns.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Makes the wall clock jump, in either direction; the monotonic one goes on.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.wall_ms.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_jump_leaves_the_monotonic_clock_alone() {
        let clock = SimClock::new(1_000);
        clock.advance(Duration::from_millis(5));
        clock.set_now_ms(10);
        assert_eq!((clock.now_ms(), clock.monotonic()), (10, Duration::from_millis(5)));
    }

    #[test]
    fn the_real_clock_is_past_2020() {
        assert!(RealClock::new().now_ms() > 1_577_836_800_000);
    }
}
