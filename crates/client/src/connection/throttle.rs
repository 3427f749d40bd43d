//! A broker that wants to hear nothing for a while (KIP-219): whoever sends on its connection waits until then.

use std::sync::Arc;
use std::time::Duration;

use milena_protocol::Message;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Until when; shared by all that concern a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Throttle(Arc<Mutex<Option<Instant>>>);

impl Throttle {
    /// A response may ask for a while, which it is returned; a shorter one does not cut short what was asked for before.
    pub(crate) fn note<'a>(&self, response: &impl Message<'a>) -> Option<Duration> {
        let ms = u64::try_from(response.throttle_time_ms()).ok().filter(|ms| *ms > 0)?;
        let wait = Duration::from_millis(ms);
        let until = Instant::now() + wait;
        let mut at = self.0.lock();
        *at = (*at).max(Some(until));
        Some(wait)
    }

    /// Until when nothing may be sent, if that is later than now.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.0.lock().filter(|until| *until > now)
    }
}
