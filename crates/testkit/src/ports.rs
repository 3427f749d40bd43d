//! Free TCP ports for servers under test. They lie below the ephemeral range, so that no client's own connection can
//! hold one and no probe of a server that is not up yet can connect to itself.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port of the loopback interface that nobody listens on now and that this process has not given out before.
///
/// # Panics
/// When every port of the range is taken.
#[must_use]
pub fn free() -> u16 {
    // Processes start at different places, so that two suites at the same time rarely ask for the same port.
    let start = u16::try_from(std::process::id().wrapping_mul(61) % u32::from(COUNT)).unwrap_or(0);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start + step % COUNT) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}
