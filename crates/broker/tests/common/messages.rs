//! What the brokers of this process say in their logs.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, Once};

static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Keep;

impl Write for Keep {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        KEPT.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// From now on messages are kept.
pub fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN).with_writer(|| Keep).init();
    });
}

/// The messages that name this path or something below it.
pub fn about(path: &Path) -> Vec<String> {
    let path = path.display().to_string();
    let kept = String::from_utf8_lossy(&KEPT.lock().unwrap()).into_owned();
    kept.lines().filter(|line| line.contains(&path)).map(str::to_owned).collect()
}
