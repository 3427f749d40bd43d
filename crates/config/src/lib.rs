//! Kafka's configuration: definitions, files, environment, validation.
