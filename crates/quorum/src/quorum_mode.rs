//! How a quorum's voters are found: named in the configuration, or recorded in the metadata log. Chosen when a node is
//! formatted.

use milena_protocol::Uuid;
use milena_raft::VoterEndpoint;

/// How the quorum's voters are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuorumMode {
    /// `controller.quorum.voters` names them; `kraft.version` 0.
    StaticVoters,
    /// `--standalone`: this node is the only one.
    Standalone {
        /// Its controller listener as others reach it.
        endpoint: VoterEndpoint,
    },
    /// `--initial-controllers`.
    InitialControllers(Vec<InitialController>),
    /// `--no-initial-controllers`: the quorum exists, and this node will learn its voters.
    NoInitialControllers,
}

/// One voter of `--initial-controllers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialController {
    /// The node id.
    pub id: i32,
    /// Id of its metadata directory.
    pub directory_id: Uuid,
    /// Its controller listener.
    pub endpoint: VoterEndpoint,
}

/// The `format` arguments that choose the mode.
#[derive(Clone, Debug, Default)]
pub struct QuorumArguments<'a> {
    /// Whether the node has the controller role.
    pub is_controller: bool,
    /// Whether `controller.quorum.voters` is set.
    pub static_voters: bool,
    /// `--standalone`, with the node's own controller listener.
    pub standalone: Option<VoterEndpoint>,
    /// `--initial-controllers`.
    pub initial_controllers: Option<&'a str>,
    /// `--no-initial-controllers`.
    pub no_initial_controllers: bool,
    /// Name of the first controller listener, which the addresses of `--initial-controllers` belong to.
    pub controller_listener: &'a str,
}

/// Arguments that choose no mode. The texts are Kafka's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuorumModeError {
    /// No argument, but one is needed.
    #[error(
        "Because controller.quorum.voters is not set on this controller, you must specify one of the following: \
         --standalone, --initial-controllers, or --no-initial-controllers."
    )]
    NoMode,
    /// Voters both in the configuration and in an argument.
    #[error(
        "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. If you \
         want to use dynamic quorum, please remove controller.quorum.voters and specify controller.quorum.bootstrap.servers \
         instead."
    )]
    StaticAndDynamic,
    /// `--standalone` without the controller role.
    #[error("You can only use --standalone on a controller.")]
    StandaloneBroker,
    /// `kraft.version` 0 for voters in the log.
    #[error(
        "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone, \
         --initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try removing the \
         --feature flag for kraft.version."
    )]
    KRaftVersionTooLow,
    /// `kraft.version` 1 for voters in the configuration.
    #[error(
        "Cannot set kraft.version to {0} unless controller.quorum.voters is empty and one of the flags --standalone, \
         --initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try using one of \
         --standalone, --initial-controllers, or --no-initial-controllers and removing controller.quorum.voters."
    )]
    KRaftVersionTooHigh(i16),
    /// `--initial-controllers` that cannot be read.
    #[error("{0}")]
    Voters(String),
}

impl QuorumMode {
    /// The mode that arguments choose.
    ///
    /// # Errors
    /// [`QuorumModeError`] for arguments that choose none or contradict the configuration.
    pub fn choose(arguments: QuorumArguments<'_>) -> Result<Self, QuorumModeError> {
        let initial = arguments.initial_controllers.map(|text| parse_voters(text, arguments.controller_listener));
        let initial = initial.transpose()?;
        if arguments.static_voters {
            let dynamic = arguments.standalone.is_some() || initial.is_some();
            return if dynamic { Err(QuorumModeError::StaticAndDynamic) } else { Ok(Self::StaticVoters) };
        }
        if let Some(endpoint) = arguments.standalone {
            return if arguments.is_controller {
                Ok(Self::Standalone { endpoint })
            } else {
                Err(QuorumModeError::StandaloneBroker)
            };
        }
        match initial {
            Some(voters) => Ok(Self::InitialControllers(voters)),
            None if arguments.no_initial_controllers || !arguments.is_controller => Ok(Self::NoInitialControllers),
            None => Err(QuorumModeError::NoMode),
        }
    }

    /// The `kraft.version` of the mode.
    pub fn kraft_version(&self) -> i16 {
        i16::from(*self != Self::StaticVoters)
    }

    /// Checks a `kraft.version` that was asked for.
    pub(crate) fn check_kraft_version(&self, asked: Option<i16>) -> Result<(), QuorumModeError> {
        match asked {
            Some(0) if self.kraft_version() > 0 => Err(QuorumModeError::KRaftVersionTooLow),
            Some(level) if level > self.kraft_version() => Err(QuorumModeError::KRaftVersionTooHigh(level)),
            _ => Ok(()),
        }
    }
}

/// Reads `id@host:port:directoryId,…`.
fn parse_voters(text: &str, listener: &str) -> Result<Vec<InitialController>, QuorumModeError> {
    let mut voters: Vec<InitialController> = Vec::new();
    for voter in text.split(',') {
        let voter = parse_voter(voter.trim(), listener).map_err(QuorumModeError::Voters)?;
        if voters.iter().any(|v| v.id == voter.id) {
            return Err(QuorumModeError::Voters(format!("Node id {} was specified more than once.", voter.id)));
        }
        voters.push(voter);
    }
    Ok(voters)
}

fn parse_voter(text: &str, listener: &str) -> Result<InitialController, String> {
    let (id, rest) = text.split_once('@').ok_or("No @ found in dynamic voter string.")?;
    let id = id.parse().ok().filter(|id| *id >= 0).ok_or(format!("Failed to parse node id in {text}."))?;
    let (host, rest) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) =
                rest.split_once(']').ok_or("Hostname began with left bracket, but no right bracket was found.")?;
            (host, rest.strip_prefix(':').ok_or("No colon following hostname could be found.")?)
        }
        None => rest.split_once(':').ok_or("No colon following hostname could be found.")?,
    };
    let (port, directory_id) = rest.split_once(':').ok_or("No colon following port could be found.")?;
    let port = port.parse().map_err(|_| format!("Failed to parse port in {text}."))?;
    let directory_id = directory_id.parse().map_err(|_| format!("Failed to parse directory ID in {text}."))?;
    let endpoint = VoterEndpoint { name: listener.to_owned(), host: host.to_owned(), port };
    Ok(InitialController { id, directory_id, endpoint })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(change: impl FnOnce(&mut QuorumArguments<'static>)) -> Result<QuorumMode, String> {
        let mut arguments =
            QuorumArguments { is_controller: true, controller_listener: "CONTROLLER", ..Default::default() };
        change(&mut arguments);
        QuorumMode::choose(arguments).map_err(|e| e.to_string())
    }

    fn endpoint() -> VoterEndpoint {
        VoterEndpoint { name: "CONTROLLER".to_owned(), host: "::1".to_owned(), port: 29093 }
    }

    #[test]
    fn each_mode_has_its_argument() {
        assert_eq!(choose(|a| a.static_voters = true), Ok(QuorumMode::StaticVoters));
        assert_eq!(choose(|a| a.no_initial_controllers = true), Ok(QuorumMode::NoInitialControllers));
        assert_eq!(choose(|a| a.is_controller = false), Ok(QuorumMode::NoInitialControllers));
        let standalone = choose(|a| a.standalone = Some(endpoint()));
        assert_eq!(standalone, Ok(QuorumMode::Standalone { endpoint: endpoint() }));
        let directory_id = "VUK78uoJyllVz-GqkcCBCA".parse().unwrap();
        let voters = choose(|a| a.initial_controllers = Some("1@[::1]:29093:VUK78uoJyllVz-GqkcCBCA"));
        let voter = InitialController { id: 1, directory_id, endpoint: endpoint() };
        assert_eq!(voters, Ok(QuorumMode::InitialControllers(vec![voter])));
    }

    #[test]
    fn contradictions_are_refused_with_kafkas_messages() {
        let refused = |change: fn(&mut QuorumArguments<'static>)| choose(change).unwrap_err();
        assert!(
            refused(|_| ()).starts_with("Because controller.quorum.voters is not set on this controller, you must")
        );
        assert!(
            refused(|a| (a.static_voters, a.standalone) = (true, Some(endpoint())))
                .starts_with("You cannot specify controller.quorum.voters and format the node with")
        );
        assert_eq!(
            refused(|a| (a.is_controller, a.standalone) = (false, Some(endpoint()))),
            "You can only use --standalone on a controller."
        );
        assert_eq!(refused(|a| a.initial_controllers = Some("foo")), "No @ found in dynamic voter string.");
        assert_eq!(
            refused(|a| a.initial_controllers = Some("1@127.0.0.1:29093")),
            "No colon following port could be found."
        );
        assert_eq!(
            refused(|a| a.initial_controllers = Some("1@h:1:VUK78uoJyllVz-GqkcCBCA,1@h:2:VUK78uoJyllVz-GqkcCBCB")),
            "Node id 1 was specified more than once."
        );
    }
}
