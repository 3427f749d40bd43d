//! One partition's log, and a log directory's files.
