//! Writes the table of APIs into the README: `cargo run -p milena-broker --example readme_table`.

use std::path::Path;

use milena_broker::registry::markdown;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(&readme)?;
    std::fs::write(&readme, markdown::refresh(&page).ok_or("the README has no marks for the table")?)?;
    Ok(())
}
