//! The repository's own rules: lengths of functions and files, edges between crates, words that must not be there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FUNCTION_LIMIT: usize = 100;
const FILE_LIMIT: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned()
}

/// All files below a folder, without what is built or installed there.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of the repository can be read") {
        let entry = entry.expect("an entry can be read");
        let name = entry.file_name();
        let skipped = ["target", ".git", "node_modules", "milena-data", ".cache", "__pycache__"];
        if skipped.iter().any(|s| name == *s) {
            continue;
        }
        if entry.file_type().expect("an entry has a type").is_dir() {
            files(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    for dir in ["crates", "xtask", "bench"] {
        files(&root.join(dir), &mut found);
    }
    found.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    found.sort();
    let name = |path: &Path| path.strip_prefix(&root).unwrap_or(path).display().to_string();
    found.into_iter().map(|path| (name(&path), fs::read_to_string(&path).expect("a source is text"))).collect()
}

fn table(file: &str) -> toml::Table {
    let text = fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    text.parse().unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The limit that `tidy.toml` gives a file or function, if any.
fn exception(tidy: &toml::Table, kind: &str, name: &str) -> Option<usize> {
    let entry = tidy.get(kind)?.get(name)?;
    let reason = entry.get("reason").and_then(|r| r.as_str()).unwrap_or_default();
    assert!(!reason.is_empty(), "tidy.toml: {name} has no reason");
    entry.get("lines").and_then(toml::Value::as_integer).and_then(|n| usize::try_from(n).ok())
}

#[derive(Default)]
struct Functions {
    found: Vec<(String, usize)>,
}

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line - signature.span().start().line + 1;
        self.found.push((signature.ident.to_string(), lines));
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[test]
fn functions_have_at_most_a_hundred_lines() {
    let tidy = table("tidy.toml");
    let mut long = Vec::new();
    for (file, text) in sources() {
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let mut functions = Functions::default();
        functions.visit_file(&parsed);
        for (name, lines) in functions.found {
            let limit = exception(&tidy, "functions", &format!("{file}::{name}")).unwrap_or(FUNCTION_LIMIT);
            if lines > limit {
                long.push(format!("{file}::{name} has {lines} lines"));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn files_have_at_most_eight_hundred_lines() {
    let tidy = table("tidy.toml");
    let mut long = Vec::new();
    for (file, text) in sources() {
        let lines = text.lines().count();
        if lines > exception(&tidy, "files", &file).unwrap_or(FILE_LIMIT) {
            long.push(format!("{file} has {lines} lines"));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// The workspace's members by folder name, with their manifests.
fn members() -> BTreeMap<String, toml::Table> {
    let mut members = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates can be listed") {
        let name = entry.expect("an entry can be read").file_name().to_string_lossy().into_owned();
        members.insert(name.clone(), table(&format!("crates/{name}/Cargo.toml")));
    }
    for name in ["bench", "xtask"] {
        members.insert(name.to_owned(), table(&format!("{name}/Cargo.toml")));
    }
    members
}

/// The crates of the workspace that a manifest names in one of its sections.
fn named(manifest: &toml::Table, section: &str) -> Vec<String> {
    let Some(section) = manifest.get(section).and_then(|s| s.as_table()) else { return Vec::new() };
    section.keys().filter_map(|key| key.strip_prefix("milena-").map(str::to_owned)).collect()
}

#[test]
fn crates_depend_only_on_the_layers_below_them() {
    let layers = table("layers.toml");
    let edges = layers["edges"].as_table().expect("layers.toml has edges");
    let mut wrong = Vec::new();
    for (name, manifest) in members() {
        let Some(allowed) = edges.get(&name).and_then(|a| a.as_array()) else {
            wrong.push(format!("layers.toml does not know {name}"));
            continue;
        };
        let allowed: Vec<_> = allowed.iter().filter_map(|a| a.as_str()).collect();
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            for dependency in named(&manifest, section) {
                let for_tests = section == "dev-dependencies" && (dependency == "testkit" || dependency == name);
                if !for_tests && !allowed.contains(&dependency.as_str()) {
                    wrong.push(format!("{name} must not depend on {dependency} ({section})"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_forbidden_words() {
    // Taken apart here, so that this file may hold them.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("for", " now"),
        concat!("shared", "/facts"),
        concat!("crates", ".io"),
        concat!("registry.", "npmjs"),
        concat!("pypi", ".org"),
        concat!("proxy.", "golang"),
        concat!("repo.", "maven"),
        concat!("repo1.", "maven"),
    ];
    let mut found = Vec::new();
    files(&root(), &mut found);
    let mut wrong = Vec::new();
    for path in found {
        // The lock file names where its packages come from; a worktree's `.git` is a file.
        if path.ends_with("Cargo.lock") || path.ends_with(".git") {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(**word)) {
                let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
                wrong.push(format!("{name}:{}: {word}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The crates from elsewhere that some member names.
fn used_dependencies() -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for manifest in members().into_values().chain([table("fuzz/Cargo.toml")]) {
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let Some(section) = manifest.get(section).and_then(|s| s.as_table()) else { continue };
            used.extend(section.keys().filter(|name| !name.starts_with("milena-")).cloned());
        }
    }
    used
}

#[test]
fn each_dependency_is_used_and_has_one_reason() {
    let told = fs::read_to_string(root().join("docs/dependencies.md")).expect("docs/dependencies.md");
    let rows = told.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let reasons = rows.filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    let mut reasons: Vec<String> =
        reasons.flat_map(|(names, _)| names.split(", ").map(str::to_owned).collect::<Vec<_>>()).collect();
    reasons.sort();
    assert_eq!(reasons, Vec::from_iter(used_dependencies()), "docs/dependencies.md, and what the manifests name");
    let workspace = table("Cargo.toml");
    let offered = workspace["workspace"]["dependencies"].as_table().expect("the workspace has dependencies");
    let used = used_dependencies();
    let unused: Vec<_> = offered.keys().filter(|name| !name.starts_with("milena-") && !used.contains(*name)).collect();
    assert!(unused.is_empty(), "no member uses {unused:?}");
}

#[test]
fn the_architecture_page_names_files_that_exist() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let quoted = page.split('`').skip(1).step_by(2);
    let is_file = |text: &&str| text.contains('/') && text.ends_with(".rs") && !text.contains(['<', '*']);
    let handlers = root().join("crates/broker/src/handlers");
    let missing = |text: &&str| !root().join("crates").join(text).exists() && !handlers.join(text).exists();
    let missing: Vec<_> = quoted.filter(is_file).filter(missing).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:?}");
}
