//! `KAFKA_*` environment variables as configuration, mapped as the apache/kafka image maps them.

/// Variables with the prefix that are no configuration: the image and Kafka's scripts use them otherwise.
const NOT_CONFIGURATION: [&str; 17] = [
    "KAFKA_CLUSTER_ID",
    "KAFKA_DEBUG",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_HOME",
    "KAFKA_JMX_HOSTNAME",
    "KAFKA_JMX_OPTS",
    "KAFKA_JMX_PORT",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_MODE",
    "KAFKA_OPTS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_TOOLS_LOG4J_OPTS",
    "KAFKA_VERSION",
];

/// The configuration that an environment variable sets, `None` if it sets none.
///
/// The rest after `KAFKA_` in lower case, `___` becoming `-`, `__` becoming `_`, `_` becoming `.`.
pub fn configuration_name(variable: &str) -> Option<String> {
    let rest = variable.strip_prefix("KAFKA_").filter(|rest| !rest.is_empty())?;
    if NOT_CONFIGURATION.contains(&variable) {
        return None;
    }
    Some(rest.to_lowercase().replace("___", "-").replace("__", "\0").replace('_', ".").replace('\0', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_map_as_in_the_image() {
        let name = |v: &str| configuration_name(v).unwrap();
        assert_eq!(name("KAFKA_LOG_DIRS"), "log.dirs");
        assert_eq!(name("KAFKA_FOO__BAR"), "foo_bar");
        assert_eq!(name("KAFKA_FOO___BAR_BAZ"), "foo-bar.baz");
        assert_eq!(name("KAFKA_FOO____BAR"), "foo-.bar");
    }

    #[test]
    fn variables_of_the_image_and_of_others_set_nothing() {
        for variable in ["KAFKA_HEAP_OPTS", "KAFKA_CLUSTER_ID", "CLUSTER_ID", "PATH", "KAFKA_", "kafka_log_dirs"] {
            assert_eq!(configuration_name(variable), None, "{variable}");
        }
    }
}
