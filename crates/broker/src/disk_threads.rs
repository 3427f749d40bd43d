//! Threads for what may wait for the disk, so that no reactor does. They come when there is work and go when there has been
//! none for a while. What the work is, and that there is not too much of it, is its owner's business.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// How long a thread waits for more.
const PATIENCE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Some threads and the queue of what they do, first come, first served. A clone shares them.
#[derive(Clone)]
pub struct DiskThreads {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    state: Mutex<State>,
    /// There is work, or nothing more will come.
    work: Condvar,
    /// A thread has gone.
    gone: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    most: usize,
    stopping: bool,
}

impl DiskThreads {
    /// Up to `most` threads of this name, at least one.
    pub fn new(name: &'static str, most: usize) -> Self {
        let state = State { jobs: VecDeque::new(), threads: 0, idle: 0, most: most.max(1), stopping: false };
        let (work, gone) = (Condvar::new(), Condvar::new());
        Self { shared: Arc::new(Shared { name, state: Mutex::new(state), work, gone }) }
    }

    /// From now on there are up to `most` threads, at least one.
    pub fn set_most(&self, most: usize) {
        self.shared.state.lock().most = most.max(1);
        self.shared.work.notify_all();
    }

    /// Does this as soon as a thread is free. After [`stop`](Self::stop) it is dropped.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        if state.stopping {
            return;
        }
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() || state.threads >= state.most {
            drop(state);
            self.shared.work.notify_one();
            return;
        }
        let shared = Arc::clone(&self.shared);
        match std::thread::Builder::new().name(shared.name.into()).spawn(move || shared.serve()) {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                tracing::error!(%error, "no thread can be started for the disk; a reactor waits for it");
                let jobs = std::mem::take(&mut state.jobs);
                drop(state);
                jobs.into_iter().for_each(|job| job());
            }
            Err(error) => tracing::warn!(%error, "no further thread can be started for the disk"),
        }
    }

    /// As [`run`](Self::run), for a reactor that waits for the outcome; `None` when it was dropped.
    pub async fn ask<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> Option<R> {
        let (told, outcome) = oneshot::channel();
        self.run(move || {
            // Who asked may have gone, and with it the need for an answer.
            if !told.is_closed() {
                drop(told.send(job()));
            }
        });
        outcome.await.ok()
    }

    /// Does what is queued, and nothing more; comes back when all threads are gone.
    pub fn stop(&self) {
        let mut state = self.shared.state.lock();
        state.stopping = true;
        self.shared.work.notify_all();
        while state.threads > 0 {
            self.shared.gone.wait(&mut state);
        }
    }
}

impl Shared {
    fn serve(&self) {
        while let Some(job) = self.next() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!(thread = self.name, "a panic ended a piece of work");
            }
        }
    }

    /// Waits for work; `None` when the thread is to go.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            let surplus = state.threads > state.most;
            if !surplus && let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            let late = !surplus && !state.stopping && self.work.wait_for(&mut state, PATIENCE).timed_out();
            state.idle -= 1;
            if surplus || ((late || state.stopping) && state.jobs.is_empty()) {
                state.threads -= 1;
                self.gone.notify_all();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn no_more_threads_than_allowed_work_at_once_and_a_stop_does_what_is_queued() {
        let threads = DiskThreads::new("test", 2);
        let (done, busy, most) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        for _ in 0..50 {
            let (done, busy, most, wait) = (Arc::clone(&done), Arc::clone(&busy), Arc::clone(&most), Arc::clone(&wait));
            threads.run(move || {
                most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let _ = wait.lock().recv();
                busy.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        drop(go);
        threads.stop();
        assert_eq!(done.load(Ordering::SeqCst), 50);
        assert!(most.load(Ordering::SeqCst) <= 2);
        // Nothing runs after the stop: whatever would have run it is gone when this comes back.
        let after = Arc::clone(&done);
        threads.run(move || {
            after.fetch_add(1, Ordering::SeqCst);
        });
        threads.stop();
        assert_eq!((done.load(Ordering::SeqCst), Arc::strong_count(&done)), (50, 1));
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_done() {
        let threads = DiskThreads::new("test", 1);
        let (go, wait) = mpsc::channel::<()>();
        threads.run(move || assert!(wait.recv().is_err()));
        let done = Arc::<AtomicUsize>::default();
        let (given_up, awaited) = (Arc::clone(&done), Arc::clone(&done));
        let mut given_up = Box::pin(threads.ask(move || given_up.fetch_add(1, Ordering::SeqCst)));
        let polled = given_up.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        assert!(polled.is_pending());
        drop(given_up);
        let mut awaited = Box::pin(threads.ask(move || awaited.fetch_add(1, Ordering::SeqCst)));
        assert!(awaited.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
        drop(go);
        threads.stop();
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_panic_takes_no_thread_away() {
        let threads = DiskThreads::new("test", 1);
        let (told, tell) = (mpsc::channel(), 7);
        threads.run(|| panic!("as the test wants it"));
        let to = told.0;
        threads.run(move || to.send(tell).unwrap());
        assert_eq!(told.1.recv(), Ok(7));
    }
}
