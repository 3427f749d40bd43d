//! API keys, and what the message definitions say about each API. Which versions a broker advertises is its own
//! business: Produce, for one, is advertised from version 0 although 3 is the oldest that exists.

use std::fmt;

/// The number that says what a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKey(pub i16);

/// What is known about an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiInfo {
    /// Its number.
    pub key: ApiKey,
    /// Kafka's name, such as `Produce`.
    pub name: &'static str,
    /// Oldest version that exists.
    pub min: i16,
    /// Newest version that exists.
    pub max: i16,
    /// First version whose body is flexible; `i16::MAX` when none is.
    pub flexible_from: i16,
    /// Whether the newest version is only advertised when unstable versions are enabled.
    pub latest_unstable: bool,
    /// Whether brokers serve it.
    pub on_broker: bool,
    /// Whether controllers serve it.
    pub on_controller: bool,
    /// Whether it needs the right to act as a part of the cluster.
    pub cluster_action: bool,
    /// Whether a broker forwards it to the controller.
    pub forwardable: bool,
}

impl ApiInfo {
    /// Newest version that is advertised: `max`, or the one before while `max` is unstable.
    pub const fn stable_max(&self) -> i16 {
        if self.latest_unstable { self.max - 1 } else { self.max }
    }
}

macro_rules! apis {
    (
        keys { $($constant:ident $key:literal $name:literal;)* }
        infos { $($info:ident $($min:literal $max:literal $flexible:literal $unstable:literal $broker:literal
            $controller:literal $cluster:literal $forward:literal)?;)* }
    ) => {
        impl ApiKey {
            $(
                #[doc = concat!($name, ".")]
                pub const $constant: ApiKey = ApiKey($key);
            )*

            /// Kafka's name, such as `Produce`; `Unknown` for a key that does not exist.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($key => $name,)*
                    _ => "Unknown",
                }
            }
        }

        /// By key; `None` for keys without a version.
        static APIS: &[Option<ApiInfo>] = &[$(apis!(@info $info $($min $max $flexible $unstable $broker $controller
            $cluster $forward)?)),*];
    };
    (@info none) => { None };
    (@info $constant:ident $min:literal $max:literal $flexible:literal $unstable:literal $broker:literal
        $controller:literal $cluster:literal $forward:literal) => {
        Some(ApiInfo {
            key: ApiKey::$constant,
            name: ApiKey::$constant.name(),
            min: $min,
            max: $max,
            flexible_from: $flexible,
            latest_unstable: $unstable,
            on_broker: $broker,
            on_controller: $controller,
            cluster_action: $cluster,
            forwardable: $forward,
        })
    };
}

include!(concat!(env!("OUT_DIR"), "/api.rs"));

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// The API with this key; `None` when there is none, or none any more.
#[inline]
pub fn api_info(key: ApiKey) -> Option<&'static ApiInfo> {
    APIS.get(usize::try_from(key.0).ok()?)?.as_ref()
}

/// All APIs, by key.
pub fn apis() -> impl Iterator<Item = &'static ApiInfo> {
    APIS.iter().flatten()
}

/// Version of the request header in front of a request of this version, which need not exist; `None` for an unknown
/// key.
///
/// Kafka takes header version 2 for whatever version of an API that was flexible from its oldest version.
#[inline]
pub fn request_header_version(key: ApiKey, version: i16) -> Option<i16> {
    let info = api_info(key)?;
    let flexible = version >= info.flexible_from || info.flexible_from <= info.min;
    Some(if flexible { 2 } else { 1 })
}

/// Version of the response header in front of a response of this version; `None` for an unknown key.
///
/// ApiVersions keeps version 0, so that a client can read the answer to a version that the broker does not know.
#[inline]
pub fn response_header_version(key: ApiKey, version: i16) -> Option<i16> {
    let request = request_header_version(key, version)?;
    Some(if key == ApiKey::API_VERSIONS { 0 } else { request - 1 })
}

#[cfg(test)]
mod tests {
    use super::{ApiKey, api_info, apis, request_header_version, response_header_version};

    #[test]
    fn keys_without_versions_have_a_name_and_no_info() {
        assert_eq!(ApiKey::LEADER_AND_ISR.name(), "LeaderAndIsr");
        assert_eq!(apis().count(), 91);
        for key in [-1, 4, 5, 6, 7, 95, i16::MAX] {
            assert_eq!(api_info(ApiKey(key)), None);
            assert_eq!(request_header_version(ApiKey(key), 0), None);
        }
    }

    #[test]
    fn the_tables_position_is_the_key() {
        assert!(apis().all(|info| api_info(info.key) == Some(info)));
    }

    #[test]
    fn only_init_producer_id_has_an_unstable_version() {
        let unstable: Vec<_> = apis().filter(|info| info.stable_max() != info.max).map(|info| info.key).collect();
        assert_eq!(unstable, [ApiKey::INIT_PRODUCER_ID]);
    }

    #[test]
    fn api_versions_responses_keep_the_old_header() {
        assert_eq!(request_header_version(ApiKey::API_VERSIONS, 3), Some(2));
        assert_eq!(response_header_version(ApiKey::API_VERSIONS, 3), Some(0));
        assert_eq!(response_header_version(ApiKey::METADATA, 9), Some(1));
        assert_eq!(response_header_version(ApiKey::METADATA, 8), Some(0));
    }

    #[test]
    fn an_api_flexible_from_its_oldest_version_has_the_new_header_in_every_version() {
        assert_eq!(request_header_version(ApiKey::DESCRIBE_CLUSTER, -1), Some(2));
        assert_eq!(request_header_version(ApiKey::SASL_HANDSHAKE, i16::MAX - 1), Some(1));
        assert_eq!(request_header_version(ApiKey::PRODUCE, 2), Some(1));
    }
}
