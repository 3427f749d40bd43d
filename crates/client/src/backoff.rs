//! How long to wait before the next try: doubled from try to try up to a maximum, a fifth of it by chance.

use std::time::Duration;

/// `retry.backoff.ms` and `retry.backoff.max.ms`, or those of reconnecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) max: Duration,
}

/// How far from the middle a wait may lie, as a part of it.
const JITTER: f64 = 0.2;

impl Backoff {
    /// The wait after so many failures in a row, of which there was at least one.
    pub(crate) fn after(self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(20));
        let middle = doubled.min(self.max.max(self.first));
        middle.mul_f64(1.0 - JITTER + 2.0 * JITTER * fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum_give_or_take_a_fifth() {
        let backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_millis(1000) };
        for (failures, middle) in [(1, 100.0), (2, 200.0), (4, 800.0), (5, 1000.0), (u32::MAX, 1000.0)] {
            let wait = backoff.after(failures).as_secs_f64() * 1000.0;
            assert!((middle * 0.799..=middle * 1.201).contains(&wait), "{failures} failures: {wait} ms");
        }
    }
}
