//! Programs of the system that suites need, and how they are got where they are missing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Sees to it that a program is there: on Debian, as root, its package is installed.
///
/// # Errors
/// When it is missing and cannot be installed; the error says so in one line.
pub(crate) fn need(program: &str, package: &str) -> Result<()> {
    need_what(program, package, exists)
}

/// The same for a header of a C library.
///
/// # Errors
/// As [`need`].
pub(crate) fn need_header(header: &str, package: &str) -> Result<()> {
    need_what(header, package, |header| Path::new("/usr/include").join(header).is_file())
}

fn need_what(what: &str, package: &str, exists_here: impl Fn(&str) -> bool) -> Result<()> {
    if exists_here(what) {
        return Ok(());
    }
    if !exists("apt-get") || !rustix::process::getuid().is_root() {
        bail!("{what} is missing, and only root on Debian can have it installed (package {package})");
    }
    run(Command::new("apt-get").args(["update", "-q"]))?;
    run(Command::new("apt-get").args(["install", "-y", "-q", "--no-install-recommends", package]))?;
    if exists_here(what) { Ok(()) } else { bail!("package {package} does not bring {what}") }
}

/// Whether a program is in the path.
pub(crate) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Runs a command to its end, quietly; its output is in the error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?} cannot be run"))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&text).trim());
    }
    Ok(())
}
