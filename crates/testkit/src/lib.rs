//! Test tools: a broker in a box, a raw protocol client, the oracle.
