//! The README tells what the registry says.

use milena_broker::registry::markdown;
use milena_testkit::cache::repository;

#[test]
fn the_readme_lists_the_apis_that_are_served() {
    let page = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let fresh = markdown::refresh(&page).expect("the README has marks for the table");
    assert!(page == fresh, "run `cargo run -p milena-broker --example readme_table`");
}
