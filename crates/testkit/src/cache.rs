//! The folder where downloads and built suites stay from one run to the next.

use std::path::PathBuf;

/// `$MILENA_CACHE`, else `$HOME/.cache/milena`, else a folder below the system's temporary one.
#[must_use]
pub fn dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("MILENA_CACHE") {
        return PathBuf::from(dir);
    }
    let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    home.join(".cache").join("milena")
}

/// The root of the repository that this crate was built from.
#[must_use]
pub fn repository() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map_or(here.clone(), PathBuf::from)
}
