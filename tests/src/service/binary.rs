//! Where the program under test is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The `berth` program of the profile that the tests were built with.
///
/// `cargo test --workspace` has built it beside the tests. It is built here only where it is missing. A program at
/// `BERTH_TEST_BINARY` is used instead, if that is set: a release build, say.
#[must_use]
pub fn berth() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("BERTH_TEST_BINARY") {
        Some(chosen) => chosen.into(),
        None => beside_the_tests(),
    })
}

/// Tests are at `<target>/<profile>/deps/<test>`, programs at `<target>/<profile>/<program>`.
fn beside_the_tests() -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let deps = test.parent().expect("a test is in a directory");
    let profile = if deps.ends_with("deps") { deps.parent().expect("the profile's directory") } else { deps };
    let binary = profile.join("berth");
    if !binary.exists() {
        build(profile);
    }
    assert!(binary.exists(), "no {} after building it", binary.display());
    binary
}

fn build(profile: &Path) {
    let name = profile.file_name().and_then(|name| name.to_str()).expect("a profile's name");
    // Tests have a profile of their own that shares the directory of `dev`.
    let name = if name == "debug" { "test" } else { name };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--locked", "-p", "berth", "--bin", "berth", "--profile", name, "--target-dir"])
        .arg(profile.parent().expect("the target directory"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status();
    assert!(built.expect("cargo runs").success(), "berth cannot be built");
}
