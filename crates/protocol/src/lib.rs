//! Kafka's messages: types and codec generated from `schema/*.json`, error codes, API keys.
