//! `milena storage`: Kafka's kafka-storage, by the same names.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Error, Result};
use milena_config::BrokerConfig;
use milena_io::{Clock, Disk, RealClock, RealDisk, RealRng, Rng};
use milena_metadata::MetadataVersion;
use milena_protocol::Uuid;
use milena_protocol::messages::UserScramCredentialRecord;
use milena_quorum::{FormatOptions, QuorumArguments, QuorumMode};
use milena_raft::VoterEndpoint;

use crate::settings;

/// What to do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Formats the log directories of a configuration.
    Format(Format),
    /// Tells what the log directories of a configuration hold.
    Info(settings::Arguments),
    /// Prints a random id, such as a cluster's.
    RandomUuid,
    /// Tells which features' levels a Kafka release begins with.
    VersionMapping {
        /// Kafka release or metadata version; the newest stable one when not given.
        #[arg(long, short = 'r', value_name = "VERSION")]
        release_version: Option<String>,
    },
    /// Tells what levels of features depend on.
    FeatureDependencies {
        /// A feature's level; can be given many times.
        #[arg(long, short = 'f', value_name = "FEATURE=LEVEL", required = true)]
        feature: Vec<String>,
    },
}

/// Arguments of `milena storage format`.
#[derive(clap::Args)]
pub struct Format {
    #[command(flatten)]
    settings: settings::Arguments,
    /// The cluster's id; a random one when not given.
    #[arg(long, short = 't', value_name = "ID")]
    cluster_id: Option<String>,
    /// Leaves formatted directories alone instead of failing.
    #[arg(long, short = 'g')]
    ignore_formatted: bool,
    /// Kafka release or metadata version to begin with.
    #[arg(long, short = 'r', value_name = "VERSION")]
    release_version: Option<String>,
    /// A feature's level; can be given many times.
    #[arg(long, short = 'f', value_name = "FEATURE=LEVEL")]
    feature: Vec<String>,
    /// A SCRAM credential to begin with: SCRAM-SHA-256=[name=alice,password=secret]; can be given many times.
    #[arg(long, short = 'S', value_name = "CREDENTIAL")]
    add_scram: Vec<String>,
    /// A quorum of which this node is the only voter.
    #[arg(long, short = 's')]
    standalone: bool,
    /// The voters: id@host:port:directory, separated by commas.
    #[arg(long, short = 'I', value_name = "VOTERS")]
    initial_controllers: Option<String>,
    /// The voters are learnt from the quorum.
    #[arg(long, short = 'N')]
    no_initial_controllers: bool,
}

/// Runs one of the storage commands.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Format(arguments) => arguments.run(),
        Command::Info(settings) => info(settings),
        Command::RandomUuid => {
            println!("{}", random_id());
            Ok(ExitCode::SUCCESS)
        }
        Command::VersionMapping { release_version } => {
            print!("{}", milena_quorum::version_mapping(release_version.as_deref())?);
            Ok(ExitCode::SUCCESS)
        }
        Command::FeatureDependencies { feature } => {
            let levels = feature.iter().map(|text| milena_quorum::parse_feature(text));
            let levels = levels.collect::<Result<Vec<_>, _>>().map_err(Error::msg)?;
            print!("{}", milena_quorum::feature_dependencies(&levels)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn info(settings: &settings::Arguments) -> Result<ExitCode> {
    let (_, config) = settings.load()?;
    let dirs = config.all_dirs();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let info = milena_quorum::info(&disk, &dirs);
    print!("{info}");
    Ok(if info.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Format {
    fn run(&self) -> Result<ExitCode> {
        let (_, config) = self.settings.load()?;
        let options = self.options(&config)?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
        let formatted = milena_quorum::format(&disk, &options, &mut RealRng, RealClock::new().now_ms())?;
        for line in formatted.lines {
            println!("{line}");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self, config: &BrokerConfig) -> Result<FormatOptions> {
        let release = self.release_version.as_deref().map(MetadataVersion::from_name).transpose()?;
        let cluster_id = self.cluster_id.clone().unwrap_or_else(|| random_id().to_string());
        Ok(FormatOptions {
            cluster_id,
            node_id: config.node_id(),
            dirs: config.all_dirs(),
            metadata_dir: PathBuf::from(config.metadata_log_dir()),
            is_controller: config.is_controller(),
            mode: self.mode(config)?,
            release,
            features: milena_quorum::parse_features(&self.feature).map_err(Error::msg)?,
            ignore_formatted: self.ignore_formatted,
            scram: self.credentials()?,
        })
    }

    fn mode(&self, config: &BrokerConfig) -> Result<QuorumMode> {
        let listener = milena_broker::broker::controller_listener(config);
        let endpoint = VoterEndpoint { name: listener.name.clone(), host: listener.host, port: listener.port };
        let arguments = QuorumArguments {
            is_controller: config.is_controller(),
            static_voters: !config.quorum_voters().is_empty(),
            standalone: self.standalone.then_some(endpoint),
            initial_controllers: self.initial_controllers.as_deref(),
            no_initial_controllers: self.no_initial_controllers,
            controller_listener: &listener.name,
        };
        Ok(QuorumMode::choose(arguments)?)
    }

    fn credentials(&self) -> Result<Vec<UserScramCredentialRecord<'static>>> {
        let credentials = self.add_scram.iter().map(|text| milena_quorum::parse_scram(text, &mut RealRng));
        Ok(credentials.collect::<Result<_, _>>()?)
    }
}

fn random_id() -> Uuid {
    Uuid::random(|bytes| RealRng.fill(bytes))
}
