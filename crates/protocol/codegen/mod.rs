//! The code generator: Kafka's message definitions in, Rust types with their codec out.
//!
//! Everything that can live in a function of the crate's runtime does, so that the generated code stays small.

mod decode;
mod encode;
mod json;
mod names;
mod schema;
mod structs;
mod tables;
mod types;

use std::path::{Path, PathBuf};
use std::{env, fs};

use schema::Message;

/// Reads the definitions and writes the generated files into `OUT_DIR`.
///
/// Any oddity in the definitions stops the build: they are part of the crate.
pub(super) fn run() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for dir in ["schema", "data", "codegen"] {
        println!("cargo::rerun-if-changed={dir}");
    }
    let messages = read_schemas(&root.join("schema"));
    let write = |name: &str, text: String| fs::write(out.join(name), text).expect("OUT_DIR is writable");
    write("messages.rs", messages.iter().map(structs::module).collect::<String>() + &structs::reexports(&messages));
    write("json.rs", messages.iter().map(json::message).collect());
    write("api.rs", tables::apis(&messages, &read(&root.join("data/apis.tsv"))));
    write("error_code.rs", tables::error_codes(&read(&root.join("data/errors.tsv"))));
    write("request.rs", tables::requests(&messages));
    write("metadata_record.rs", tables::metadata_records(&messages));
    write("catalog.rs", tables::catalog(&messages));
    write("coordinator_record.rs", tables::coordinator_records(&messages));
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read_schemas(dir: &Path) -> Vec<Message> {
    let entries = fs::read_dir(dir).expect("the schemas are part of the crate");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths.iter().map(|path| Message::parse(&read(path))).collect()
}
