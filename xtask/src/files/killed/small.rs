//! A disk of a few MiB that others can fill. It is a file system in memory, in a mount namespace that a process of its own keeps; everybody
//! reaches it through that process's entry in `/proc`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

/// Its size.
const MIB: usize = 48;
/// Where it is mounted in the namespace.
const MOUNTED: &str = "/tmp";
/// What is written at once to fill it.
const PIECE: usize = 16 << 10;

/// The disk; it goes with this.
pub(super) struct SmallDisk {
    keeper: Child,
}

impl SmallDisk {
    /// Mounts one; `None` where that is not allowed.
    pub(super) fn mount() -> Result<Option<Self>> {
        let script = format!("mount -t tmpfs -o size={MIB}m tmpfs {MOUNTED} && echo mounted && exec cat");
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut keeper) = command.spawn() else { return Ok(None) };
        let mut said = String::new();
        BufReader::new(keeper.stdout.take().context("its output")?).read_line(&mut said)?;
        let disk = Self { keeper };
        Ok((said == "mounted\n").then_some(disk))
    }

    /// Where it is for every process.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{MOUNTED}", self.keeper.id()))
    }

    /// Takes all the space that is left, and gives it back after a few milliseconds.
    pub(super) fn fill_for_a_while(&self, random: &mut fastrand::Rng) -> Result<()> {
        let path = self.path().join("filler");
        let mut file = fs::File::create(&path)?;
        while file.write_all(&[1; PIECE]).is_ok() {}
        drop(file);
        std::thread::sleep(Duration::from_millis(random.u64(..60)));
        fs::remove_file(&path)?;
        std::thread::sleep(Duration::from_millis(random.u64(..60)));
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
