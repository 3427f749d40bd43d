//! Apache Kafka's own clients and tools, run as small Java programs from `compat/files`.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use milena_testkit::{cache, oracle};

/// The classes of the programs, compiled once for each state of their sources; gives their folder.
fn classes(libs: &Path) -> Result<PathBuf> {
    let sources = ["Files.java", "Tools.java"].map(|name| cache::repository().join("compat/files").join(name));
    let mut hasher = DefaultHasher::new();
    for source in &sources {
        fs::read(source)?.hash(&mut hasher);
    }
    let classes = cache::dir().join(format!("classes-{:016x}", hasher.finish()));
    if classes.exists() {
        return Ok(classes);
    }
    let partial = classes.with_extension(std::process::id().to_string());
    let mut command = Command::new("javac");
    command.arg("-cp").arg(format!("{}/*", libs.display())).arg("-d").arg(&partial).args(&sources);
    let ran = ran(&mut command)?;
    if ran.code != 0 {
        bail!("javac: {}{}", ran.out, ran.err);
    }
    // Another process may have been first.
    if let Err(error) = fs::rename(&partial, &classes)
        && !classes.exists()
    {
        return Err(error.into());
    }
    Ok(classes)
}

/// A command that runs one of the programs.
fn java(libs: &Path, program: &str) -> Result<Command> {
    let mut command = oracle::java(libs, 256);
    // What is logged would stand between what is said.
    command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=off").arg("-Dfile.encoding=UTF-8");
    command.arg("-cp").arg(format!("{}/*:{}", libs.display(), classes(libs)?.display())).arg(program);
    Ok(command)
}

/// Runs one of the commands of `Files.java`; what it printed.
pub(super) fn files(libs: &Path, args: &[&str]) -> Result<String> {
    let output = java(libs, "Files")?.args(args).output().context("java cannot be run")?;
    if !output.status.success() {
        bail!("Files.java {args:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// What a run of a tool gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

/// Runs a command to its end.
pub(super) fn ran(command: &mut Command) -> Result<Ran> {
    let output = command.output().with_context(|| format!("{command:?} cannot be run"))?;
    Ok(Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Tools that end the JVM, and say more while it ends.
const ALONE: [&str; 1] = ["VerifiableProducer"];

/// Apache Kafka's tools, ready for many runs.
pub(super) struct Tools {
    libs: PathBuf,
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Tools {
    /// Starts the JVM.
    pub(super) fn start(libs: &Path) -> Result<Tools> {
        let mut command = java(libs, "Tools")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("java cannot be run")?;
        let questions = child.stdin.take().context("no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Tools { libs: libs.to_owned(), child, questions, answers })
    }

    /// One run of a tool of the package `org.apache.kafka.tools`, with a file for its standard input or none.
    pub(super) fn run(&mut self, tool: &str, input: &str, args: &[String]) -> Result<Ran> {
        if ALONE.contains(&tool) {
            return ran(java(&self.libs, &format!("org.apache.kafka.tools.{tool}"))?.args(args));
        }
        writeln!(self.questions, "org.apache.kafka.tools.{tool}\t{input}\t{}", args.join("\t"))?;
        self.questions.flush()?;
        let code = self.number()?;
        let (out, err) = (self.number()?, self.number()?);
        Ok(Ran { code, out: self.text(out)?, err: self.text(err)? })
    }

    fn number(&mut self) -> Result<i32> {
        let mut bytes = [0; 4];
        self.answers.read_exact(&mut bytes)?;
        Ok(i32::from_be_bytes(bytes))
    }

    fn text(&mut self, length: i32) -> Result<String> {
        let mut bytes = vec![0; usize::try_from(length)?];
        self.answers.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
