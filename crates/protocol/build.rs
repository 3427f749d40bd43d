//! Turns `schema/*.json` and `data/*.tsv` into Rust; see `codegen`.

#[path = "codegen/mod.rs"]
mod codegen;

fn main() {
    codegen::run();
}
