//! The entry of the processes that other tests start.

use crate::common::child::serve_if_asked;

#[test]
fn serves_when_started_by_another_test() {
    serve_if_asked();
}
