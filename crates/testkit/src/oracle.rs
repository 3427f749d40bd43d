//! Apache Kafka as a test dependency: its jars, fetched once by Maven's ordinary client, and the Java commands that run
//! its broker and its tools. Starting and stopping a broker is in [`crate::server`].

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::server::{Kind, Options};

/// The version that Milena is compared with.
pub const VERSION: &str = "4.4.0";

/// Where the jars of the oracle are, present or not.
#[must_use]
pub fn libs() -> PathBuf {
    crate::cache::dir().join(format!("kafka-{VERSION}")).join("libs")
}

/// Fetches the jars unless they are in the cache already, and gives their folder.
///
/// # Errors
/// When Maven or Java is missing or the download fails.
pub fn ensure_jars() -> Result<PathBuf> {
    static ARCHIVED: OnceLock<Option<()>> = OnceLock::new();
    let libs = ensure(libs(), "oracle", &format!("kafka_2.13-{VERSION}.jar"))?;
    // Without it everything takes longer, and works.
    ARCHIVED.get_or_init(|| archive_classes(&libs).ok());
    Ok(libs)
}

/// Fetches what applications need beside these, and gives its folder: Kafka Streams.
///
/// # Errors
/// As [`ensure_jars`].
pub fn ensure_app_jars() -> Result<PathBuf> {
    ensure(libs().with_file_name("apps"), "apps", &format!("kafka-streams-{VERSION}.jar"))
}

/// Fetches Kafka Connect with its connectors for files, which have a version of their own, and gives its folder.
///
/// # Errors
/// As [`ensure_jars`].
pub fn ensure_connect_jars() -> Result<PathBuf> {
    ensure(libs().with_file_name("connect"), "connect", "connect-file-4.3.0.jar")
}

/// Has Maven copy the jars of a project of `compat/` into a folder, unless one of them is there.
fn ensure(libs: PathBuf, project: &str, one: &str) -> Result<PathBuf> {
    if libs.join(one).exists() {
        return Ok(libs);
    }
    let parent = libs.parent().context("the cache has no parent folder")?;
    std::fs::create_dir_all(parent)?;
    // A download that stops half-way must not look complete: it goes to another name first.
    let partial = parent.join(format!("{project}.{}", std::process::id()));
    let pom = crate::cache::repository().join("compat").join(project).join("pom.xml");
    let output = Command::new("mvn")
        .args(["-q", "-B", "-ntp", "-Dstyle.color=never", "-f"])
        .arg(&pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", partial.display()))
        .output()
        .context("mvn cannot be run; install Maven")?;
    if !output.status.success() {
        bail!("mvn could not fetch {one}: {}", String::from_utf8_lossy(&output.stdout));
    }
    if libs.exists() {
        std::fs::remove_dir_all(&libs)?;
    }
    std::fs::rename(&partial, &libs)?;
    Ok(libs)
}

/// Flags with which a JVM starts quickly.
const QUICK: [&str; 3] = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"];

/// Classes as a JVM has them in memory, for those that load the same ones: it starts in half the time.
fn archive(libs: &Path) -> PathBuf {
    libs.with_file_name("classes.jsa")
}

/// Makes the archive, of what a broker loads from its start to its stop.
fn archive_classes(libs: &Path) -> Result<()> {
    let archive = archive(libs);
    if archive.exists() {
        return Ok(());
    }
    let partial = archive.with_extension(format!("{}.jsa", std::process::id()));
    let flag = format!("-XX:ArchiveClassesAtExit={}", partial.display());
    let flags: Vec<&str> = QUICK.into_iter().chain([flag.as_str()]).collect();
    Options::new(Kind::Kafka(libs.to_owned())).production(512, &flags).start()?.stop()?;
    std::fs::rename(&partial, &archive)?;
    Ok(())
}

/// A `java` command with Kafka's jars in its class path and flags that start quickly, ready for the main class.
#[must_use]
pub fn java(libs: &Path, heap_mib: u32) -> Command {
    let mut command = Command::new("java");
    // An archive of another JVM is passed over without a word.
    command
        .arg(format!("-Xmx{heap_mib}m"))
        .args(QUICK)
        .arg(format!("-XX:SharedArchiveFile={}", archive(libs).display()))
        .arg("-Xlog:disable")
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=info")
        .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
        .arg("-cp")
        .arg(format!("{}/*", libs.display()));
    command
}

/// Formats the directories named in a `server.properties` file for the cluster id, with these levels of features.
///
/// # Errors
/// When the tool cannot be run or refuses; its output is in the error.
pub fn format_storage(libs: &Path, config: &Path, cluster_id: &str, features: &[String]) -> Result<()> {
    let output = java(libs, 256)
        .args(["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"])
        .arg(config)
        .args(features.iter().flat_map(|level| ["--feature", level]))
        .output()
        .context("java cannot be run; install Java 17")?;
    if !output.status.success() {
        bail!("storage format failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
