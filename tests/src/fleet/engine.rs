//! Where the program is that slots run.

use std::path::PathBuf;

/// `berth-test-engine`, which Cargo builds with the tests of this package.
#[must_use]
pub fn engine() -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let found = test.ancestors().skip(1).take(2).map(|directory| directory.join("berth-test-engine"));
    found.into_iter().find(|path| path.exists()).expect("berth-test-engine is built beside the tests")
}
