//! The signals that ask a program to end in order.

use tokio::signal::unix::{SignalKind, signal};

/// A signal that asks a program to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// What `kill`, `timeout` and service managers send.
    Terminate,
}

impl Signal {
    /// Waits for one. From the first time on, none of them ends the program by itself.
    pub async fn to_end() -> Self {
        tokio::select! {
            () = received(SignalKind::interrupt()) => Self::Interrupt,
            () = received(SignalKind::terminate()) => Self::Terminate,
        }
    }

    /// The exit code of a Java program that ended by it: 128 and the signal's number.
    pub fn code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

async fn received(kind: SignalKind) {
    if let Ok(mut signals) = signal(kind)
        && signals.recv().await.is_some()
    {
        return;
    }
    // Where it can't be listened to, it ends the program by itself.
    std::future::pending().await
}
