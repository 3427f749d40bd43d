//! A program that runs beside the test: what it prints is waited for, and it is killed or stopped.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may need for what is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running program. It is killed when it is dropped.
pub(super) struct Program {
    name: String,
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Program {
    /// Starts it. What it says on its standard error goes to a file in `dir` that has its name.
    pub(super) fn start(name: &str, command: &mut Command, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let errors = File::options().create(true).append(true).open(&log)?;
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let output = BufReader::new(child.stdout.take().context("its output is piped")?);
        let (send, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Ok(Self { name: name.to_owned(), child, lines, log })
    }

    /// Waits for a line that `wanted` makes something of.
    pub(super) fn wait_for<T>(&mut self, what: &str, mut wanted: impl FnMut(&str) -> Option<T>) -> Result<T> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(found) = wanted(&line) {
                        return Ok(found);
                    }
                }
                Err(RecvTimeoutError::Timeout) => bail!("{} does not say: {what}{}", self.name, self.errors()),
                Err(RecvTimeoutError::Disconnected) => bail!("{} ends without: {what}{}", self.name, self.errors()),
            }
        }
    }

    /// Waits for its end, which must be a success; gives the lines that nobody has waited for.
    pub(super) fn finish(&mut self) -> Result<Vec<String>> {
        let (until, mut rest) = (Instant::now() + PATIENCE, Vec::new());
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            rest.push(line);
        }
        let status = self.end(until)?;
        if status { Ok(rest) } else { bail!("{} fails: {}{}", self.name, rest.join("\n"), self.errors()) }
    }

    /// SIGKILL; gives the lines that nobody has waited for.
    pub(super) fn kill(mut self) -> Result<Vec<String>> {
        if self.child.try_wait()?.is_some() {
            bail!("{} has ended before it was to be killed{}", self.name, self.errors());
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.lines.iter().collect())
    }

    /// SIGTERM; waits for the end, and gives the lines that nobody has waited for.
    pub(super) fn stop(mut self) -> Result<Vec<String>> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.end(Instant::now() + PATIENCE)?;
        Ok(self.lines.iter().collect())
    }

    /// Whether it ends well.
    fn end(&mut self, until: Instant) -> Result<bool> {
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("{} does not end{}", self.name, self.errors())
    }

    /// The last lines of its standard error.
    fn errors(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].iter().map(|line| format!("\n  {line}")).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
