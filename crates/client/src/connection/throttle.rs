//! A broker that wants to hear nothing for a while (KIP-219): whoever sends on its connection waits until then.

use std::sync::Arc;
use std::time::Duration;

use metrics::Histogram;
use milena_protocol::Message;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::metrics::ms;

/// Until when; shared by all that concern a connection.
#[derive(Debug, Clone)]
pub(crate) struct Throttle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    until: Mutex<Option<Instant>>,
    times: Histogram,
}

impl Throttle {
    pub(crate) fn new(times: Histogram) -> Self {
        Self(Arc::new(Shared { until: Mutex::default(), times }))
    }

    /// A response may ask for a while, which it is returned; a shorter one does not cut short what was asked for before.
    pub(crate) fn note<'a>(&self, response: &impl Message<'a>) -> Option<Duration> {
        let wait = u64::try_from(response.throttle_time_ms()).ok().filter(|ms| *ms > 0).map(Duration::from_millis)?;
        self.0.times.record(ms(wait));
        let until = Instant::now() + wait;
        let mut at = self.0.until.lock();
        *at = (*at).max(Some(until));
        Some(wait)
    }

    /// Until when nothing may be sent, if that is later than now.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.0.until.lock().filter(|until| *until > now)
    }
}
