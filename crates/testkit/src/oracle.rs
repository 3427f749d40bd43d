//! Apache Kafka as a test dependency: its jars, fetched once by Maven's ordinary client, and the Java commands that run
//! its broker and its tools. Starting and stopping a broker is in [`crate::server`].

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

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
    let libs = libs();
    if libs.join(format!("kafka_2.13-{VERSION}.jar")).exists() {
        return Ok(libs);
    }
    let parent = libs.parent().context("the cache has no parent folder")?;
    std::fs::create_dir_all(parent)?;
    // A download that stops half-way must not look complete: it goes to another name first.
    let partial = parent.join(format!("libs.{}", std::process::id()));
    let pom = crate::cache::repository().join("compat/oracle/pom.xml");
    let output = Command::new("mvn")
        .args(["-q", "-B", "-ntp", "-Dstyle.color=never", "-f"])
        .arg(&pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", partial.display()))
        .output()
        .context("mvn cannot be run; install Maven")?;
    if !output.status.success() {
        bail!("mvn could not fetch Apache Kafka {VERSION}: {}", String::from_utf8_lossy(&output.stdout));
    }
    if libs.exists() {
        std::fs::remove_dir_all(&libs)?;
    }
    std::fs::rename(&partial, &libs)?;
    Ok(libs)
}

/// A `java` command with Kafka's jars in its class path and flags that start quickly, ready for the main class.
#[must_use]
pub fn java(libs: &Path, heap_mib: u32) -> Command {
    let mut command = Command::new("java");
    command
        .arg(format!("-Xmx{heap_mib}m"))
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"])
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=info")
        .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
        .arg("-cp")
        .arg(format!("{}/*", libs.display()));
    command
}

/// Formats the directories named in a `server.properties` file for the cluster id.
///
/// # Errors
/// When the tool cannot be run or refuses; its output is in the error.
pub fn format_storage(libs: &Path, config: &Path, cluster_id: &str) -> Result<()> {
    let output = java(libs, 256)
        .args(["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"])
        .arg(config)
        .output()
        .context("java cannot be run; install Java 17")?;
    if !output.status.success() {
        bail!("storage format failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Runs one of Kafka's tools to its end and gives its standard output.
///
/// # Errors
/// When it cannot be run or ends with another code than 0.
pub fn tool(libs: &Path, main_class: &str, args: &[&str]) -> Result<String> {
    let output = java(libs, 256).arg(main_class).args(args).output().context("java cannot be run; install Java 17")?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{main_class} failed: {stdout}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(stdout)
}
