//! `milena log dump`: Kafka's kafka-dump-log, by the same flags and with the same output. Here is which file is read by whom; one file
//! below for each kind.

mod batches;
mod decoders;
mod index;
mod legacy;
mod records;
mod remote;
mod small;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const EXAMPLES: &str = "\
Examples:
  milena log dump data/orders-0/00000000000000000000.log                        the batches
  milena log dump --print-data-log data/orders-0/00000000000000000000.log       the records too
  milena log dump --offsets-decoder data/__consumer_offsets-7/*.log             what groups have committed
  milena log dump --cluster-metadata-decoder data/__cluster_metadata-0/*.checkpoint
  milena log dump --verify-index-only --files 0.index,0.timeindex               only what is wrong with them

Findings about indexes and offsets go to standard error; the exit code is 1 only where a file can't be read on, and 4 where
it does not exist.
`milena log verify` checks whole directories.";

/// Arguments of `milena log dump`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Files to print: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint
    #[arg(value_name = "FILE", required_unless_present = "files")]
    paths: Vec<String>,
    /// Files to print, with commas between them
    #[arg(long, value_name = "FILE,FILE")]
    files: Option<String>,
    /// Prints the records' keys and values; any decoder does so too
    #[arg(long)]
    print_data_log: bool,
    /// Reads the records, not only the batches; --print-data-log does so too
    #[arg(long)]
    deep_iteration: bool,
    /// Compares indexes with their log, without printing their entries
    #[arg(long)]
    verify_index_only: bool,
    /// Checks of an index only what a start checks
    #[arg(long)]
    index_sanity_check: bool,
    /// Largest batch that an index entry may point to, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 5 << 20)]
    max_message_size: i32,
    /// Reads no more of a log than this, bytes
    #[arg(long, value_name = "BYTES", default_value_t = i32::MAX)]
    max_bytes: i32,
    /// Prints records without offset, time and sizes, and no control records
    #[arg(long)]
    skip_record_metadata: bool,
    #[command(flatten)]
    decoder: decoders::Arguments,
}

impl Arguments {
    fn prints_data(&self) -> bool {
        self.print_data_log || self.decoder.is_any()
    }

    /// As Java splits: empty names at the end do not count.
    fn all_files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = self.files.as_deref().map_or(Vec::new(), |list| list.split(',').collect());
        while files.last() == Some(&"") {
            files.pop();
        }
        files.extend(self.paths.iter().map(String::as_str));
        files
    }
}

/// Prints the files, and behind them what does not fit together.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut findings = Findings::default();
    let dumped = arguments.all_files().into_iter().try_for_each(|file| dump(file, arguments, &mut out, &mut findings));
    let flushed = out.flush().map_err(anyhow::Error::from);
    match dumped.and(flushed) {
        // Whoever reads the output has seen enough.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error),
        Ok(()) => {
            findings.write(&mut io::stderr().lock())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn dump(name: &str, arguments: &Arguments, out: &mut dyn Write, findings: &mut Findings) -> Result<()> {
    writeln!(out, "Dumping {name}")?;
    let path = Path::new(name);
    let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(dot) = file_name.rfind('.') else {
        bail!("{name}: a file name without a suffix says nothing about the content")
    };
    match &file_name[dot..] {
        ".log" | ".checkpoint" => {
            let parser = arguments.decoder.parser()?;
            let options = records::Options {
                deep: arguments.deep_iteration || arguments.prints_data(),
                contents: arguments.prints_data(),
                metadata: !arguments.skip_record_metadata,
                max_bytes: arguments.max_bytes,
            };
            records::dump(path, &options, &parser, out, findings)?;
        }
        ".index" | ".timeindex" => {
            let options = index::Options {
                sanity_only: arguments.index_sanity_check,
                quiet: arguments.verify_index_only,
                max_message_size: arguments.max_message_size,
            };
            match &file_name[dot..] {
                ".index" => index::offsets(path, &options, out, findings)?,
                _ => index::times(path, &options, out, findings)?,
            }
        }
        ".snapshot" => small::producers(path, out)?,
        ".txnindex" => small::transactions(path, out)?,
        _ => writeln!(io::stderr(), "Ignoring unknown file {name}")?,
    }
    Ok(())
}

/// The offset that a file's name begins with.
fn base_offset(path: &Path) -> Result<i64> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let digits = name.split('.').next().unwrap_or_default();
    digits.parse().with_context(|| format!("{}: the name does not begin with an offset", path.display()))
}

/// What does not fit together, by file; in the order in which files were read.
#[derive(Default)]
struct Findings {
    mismatches: Vec<(PathBuf, BTreeMap<i64, i64>)>,
    timestamps: Vec<(PathBuf, Vec<(i64, i64)>)>,
    unordered: Vec<(PathBuf, Vec<(i64, i64)>)>,
    missing: Vec<(PathBuf, Vec<(i64, i64)>)>,
    gaps: Vec<(PathBuf, BTreeMap<i64, i64>)>,
}

/// The entry of `path`, which is the last one if there is one.
fn of<'l, T: Default>(list: &'l mut Vec<(PathBuf, T)>, path: &Path) -> &'l mut T {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let at = list.iter().position(|(known, _)| *known == path).unwrap_or_else(|| {
        list.push((path, T::default()));
        list.len() - 1
    });
    &mut list[at].1
}

impl Findings {
    fn write(&self, err: &mut dyn Write) -> io::Result<()> {
        for (path, pairs) in &self.mismatches {
            writeln!(err, "Mismatches in :{}", path.display())?;
            for (index, log) in pairs.iter().rev() {
                writeln!(err, "  Index offset: {index}, log offset: {log}")?;
            }
        }
        for (path, pairs) in &self.timestamps {
            writeln!(err, "Found timestamp mismatch in :{}", path.display())?;
            for (index, log) in pairs {
                writeln!(err, "  Index timestamp: {index}, log timestamp: {log}")?;
            }
        }
        for (path, pairs) in &self.unordered {
            writeln!(err, "Found out of order timestamp in :{}", path.display())?;
            for (index, before) in pairs {
                writeln!(err, "  Index timestamp: {index}, Previously indexed timestamp: {before}")?;
            }
        }
        for (path, pairs) in &self.missing {
            writeln!(err, "The following indexed offsets are not found in :{}", path.display())?;
            for (index, log) in pairs {
                writeln!(err, "Indexed offset: {index}, found log offset: {log}")?;
            }
        }
        for (path, pairs) in &self.gaps {
            writeln!(err, "Non-consecutive offsets in {}", path.display())?;
            for (before, after) in pairs {
                writeln!(err, "  {before} is followed by {after}")?;
            }
        }
        Ok(())
    }
}
