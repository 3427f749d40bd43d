//! Reactor threads, framing, buffers, ordered responses. Knows no API.
