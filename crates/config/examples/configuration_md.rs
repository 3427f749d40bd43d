//! Writes `docs/configuration.md` from the tables of this crate.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    std::fs::write(page, milena_config::documentation::page())
}
