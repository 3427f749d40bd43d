//! From flags, environment and file to a configuration.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use milena_config::{BrokerConfig, Settings};

/// Where the configuration comes from. Flags win over the environment, the environment over the file.
#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// A properties file with Kafka's names (server.properties).
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Sets one key; can be given many times.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// Where records and metadata are kept (log.dirs).
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Where clients connect: takes the place of all listeners that are not the controllers'.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
}

impl Arguments {
    /// The settings, and the configuration that they make. Warnings go to standard error.
    ///
    /// # Errors
    /// One message for every bad value, or what is wrong with the file.
    pub fn load(&self) -> Result<(Settings, BrokerConfig)> {
        let settings = self.settings()?;
        for warning in settings.warnings() {
            warn(&warning.message);
        }
        match BrokerConfig::load(&settings) {
            Ok(config) => Ok((settings, config)),
            Err(errors) => {
                let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
                bail!("{}", lines.join("\nmilena: "))
            }
        }
    }

    /// The settings as they are, whether they make sense or not.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::new();
        if let Some(path) = &self.config {
            let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            settings.file(path, &text)?;
        }
        settings.environment(
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        );
        if let Some(dir) = &self.data_dir {
            settings.data_dir_flag(dir);
        }
        if let Some(address) = &self.listen {
            settings.listen_flag(address)?;
        }
        for text in &self.overrides {
            settings.override_flag(text)?;
        }
        Ok(settings)
    }
}

/// A warning on standard error, which nobody needs to read.
pub fn warn(message: &str) {
    let _ = writeln!(std::io::stderr(), "milena: warning: {message}");
}
