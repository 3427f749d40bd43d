//! `milena log rebuild-index`: makes index files anew that were lost or damaged.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use milena_io::{Disk, RealDisk};
use milena_log::{LogDirectory, PartitionDirName, RebuildReport, RebuiltIndex, Unreadable};

use super::bar;

const EXAMPLES: &str = "\
Examples:
  milena log rebuild-index /var/lib/milena/orders-0     one partition
  milena log rebuild-index /var/lib/milena              all partitions of a log directory

The broker must be stopped: its lock on the directory is taken. Each file is replaced in one step, and only where its content
changes; the .log files are only read. A start makes missing indexes anew by itself; this is for those that are there and wrong.

Exit code: 0 when every segment was read to its end, 1 otherwise (its indexes then lead up to the damage), 4 when there is no
such directory.";

/// Arguments of `milena log rebuild-index`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[group(skip)]
pub struct Arguments {
    /// A log directory, or a partition's
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Bytes between two entries (index.interval.bytes of the topic)
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    index_interval_bytes: u64,
}

/// Makes the indexes of what the arguments name anew.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let dir = std::path::absolute(&arguments.dir)?;
    dir.metadata().with_context(|| dir.display().to_string())?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let is_home = |dir: &Path| dir.join("meta.properties").exists();
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (home, partitions) = if is_home(&dir) {
        let mut partitions = Vec::new();
        for entry in disk.list(&dir).with_context(|| dir.display().to_string())? {
            if entry.is_dir && PartitionDirName::parse(&entry.name).is_some() {
                partitions.push(dir.join(&entry.name));
            }
        }
        (Some(dir.as_path()), partitions)
    } else if dir.is_dir() && PartitionDirName::parse(name).is_some() {
        // A partition that was copied out of its directory has no broker.
        (dir.parent().filter(|parent| is_home(parent)), vec![dir.clone()])
    } else {
        bail!("{}: is neither a log directory (there is no meta.properties) nor a partition's", dir.display());
    };
    let lock = home.map(|home| LogDirectory::open(Arc::clone(&disk), home)).transpose()?;
    let total = partitions.iter().map(|dir| milena_log::log_bytes(&*disk, dir).unwrap_or(0)).sum();
    let mut teller = Teller { bar: bar(total), files: 0, changed: 0, unreadable: 0 };
    let done = partitions
        .iter()
        .try_for_each(|dir| milena_log::rebuild_indexes(&disk, dir, arguments.index_interval_bytes, &mut teller));
    teller.bar.finish_and_clear();
    let unlocked = lock.as_ref().map_or(Ok(()), LogDirectory::unlock);
    done.and(unlocked)?;
    let Teller { files, changed, unreadable, .. } = teller;
    writeln!(
        io::stdout(),
        "{changed} of {files} index files were replaced; {unreadable} segments can't be read to their end"
    )?;
    Ok(if unreadable == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what was done, as it is done.
struct Teller {
    bar: indicatif::ProgressBar,
    files: u64,
    changed: u64,
    unreadable: u64,
}

impl Teller {
    fn line(&self, text: std::fmt::Arguments<'_>) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stdout(), "{text}");
        });
    }
}

impl RebuildReport for Teller {
    fn rebuilt(&mut self, index: RebuiltIndex) {
        self.files += 1;
        if index.changed {
            self.changed += 1;
            self.line(format_args!("replaced: {}, {} entries", index.path.display(), index.entries));
        }
    }

    fn unreadable(&mut self, Unreadable { path, position, reason }: Unreadable) {
        self.unreadable += 1;
        self.line(format_args!("problem: {} at byte {position}: {reason}", path.display()));
    }

    fn progress(&mut self, bytes: u64) {
        self.bar.inc(bytes);
    }
}
