//! How fast all cleaner threads together may read and write.

use std::time::Duration;

/// I/O ahead of its time is allowed for this long: fewer and longer waits.
const AHEAD: Duration = Duration::from_millis(300);

/// Spreads bytes over time.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// When everything that was charged is paid off, on the monotonic clock.
    paid_at: Duration,
}

impl Budget {
    /// Charges bytes at `rate` (bytes a second); returns how long to wait now.
    pub(super) fn charge(&mut self, bytes: u64, rate: f64, now: Duration) -> Duration {
        let seconds = bytes as f64 / rate;
        // What would take longer than a day is waited for in pieces.
        let cost = if seconds > 0.0 { Duration::from_secs_f64(seconds.min(86_400.0)) } else { Duration::ZERO };
        self.paid_at = self.paid_at.max(now) + cost;
        let ahead = self.paid_at - now;
        if ahead > AHEAD { ahead } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn on_average_the_rate_is_kept_and_idle_time_is_not_saved_up() {
        let mut budget = Budget::default();
        let (mut now, mut waited) = (MS(5000), Duration::ZERO);
        for _ in 0..1000 {
            let wait = budget.charge(10_000, 1e6, now);
            (now, waited) = (now + wait, waited + wait);
        }
        assert!(waited > MS(9600) && waited <= MS(10_000), "{waited:?} for ten seconds' worth");
        now += MS(60_000);
        let at_once = (0..100).take_while(|_| budget.charge(10_000, 1e6, now).is_zero()).count();
        assert_eq!(at_once, 30);
    }

    #[test]
    fn without_a_limit_there_is_no_waiting() {
        let mut budget = Budget::default();
        assert_eq!(budget.charge(u64::MAX, f64::MAX, MS(1)), Duration::ZERO);
        assert!(budget.charge(1, 0.0, MS(1)) > MS(1000));
    }
}
