//! `milena install-aliases`: links by the names of Kafka's tools.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::kafka::TOOLS;
use crate::output::print;

/// Arguments of `milena install-aliases`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where to put the links; it should be on the PATH.
    dir: PathBuf,
    /// Replaces what has these names already.
    #[arg(long)]
    force: bool,
}

/// Makes the links, each with and without `.sh`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let binary = std::env::current_exe().context("finding this program")?;
    let dir = &arguments.dir;
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    for tool in TOOLS {
        for name in [tool.name.to_owned(), format!("{}.sh", tool.name)] {
            link(&binary, &dir.join(name), arguments.force)?;
        }
    }
    print(&format!("{} tools in {}\n", TOOLS.len(), dir.display()));
    Ok(ExitCode::SUCCESS)
}

fn link(binary: &Path, at: &Path, force: bool) -> Result<()> {
    if fs::read_link(at).is_ok_and(|target| target == binary) {
        return Ok(());
    }
    if force {
        match fs::remove_file(at) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("replacing {}", at.display()));
            }
            _ => {}
        }
    }
    match std::os::unix::fs::symlink(binary, at) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} exists already and is no link to this program; --force replaces it", at.display())
        }
        other => other.with_context(|| format!("linking {}", at.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_somebody_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (binary, at) = (dir.path().join("milena"), dir.path().join("kafka-topics"));
        link(&binary, &at, false).unwrap();
        link(&binary, &at, false).unwrap();
        assert_eq!(fs::read_link(&at).unwrap(), binary);
        let theirs = dir.path().join("kafka-topics.sh");
        fs::write(&theirs, "theirs").unwrap();
        assert!(link(&binary, &theirs, false).unwrap_err().to_string().contains("--force replaces it"));
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
        link(&binary, &theirs, true).unwrap();
        assert_eq!(fs::read_link(&theirs).unwrap(), binary);
    }
}
