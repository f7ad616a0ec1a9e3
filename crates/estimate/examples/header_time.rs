//! How long it takes to read the headers of a large model.
//!
//! ```text
//! cargo run --release -p berth-estimate --example header_time -- [MODEL.gguf]
//! ```
//!
//! Without a file it makes one: 400 GB in 100 parts, all of it a hole but the headers.

#[path = "../tests/support/mod.rs"]
#[expect(clippy::expect_used, reason = "it is written for tests")]
mod support;

use std::path::PathBuf;
use std::time::Instant;

use berth_estimate::{Model, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = std::env::args().nth(1).map_or_else(|| support::write_large(folder.path()), PathBuf::from);
    for round in 1..=5 {
        let start = Instant::now();
        let model = Model::open(&path)?;
        let opened = start.elapsed();
        let made = model.estimate(&Options::default())?;
        let estimated = start.elapsed() - opened;
        let (files, weights) = (made.model.files, made.model.weights);
        println!("{round}: {files} files with {weights}: read in {opened:?}, estimated in {estimated:?}");
    }
    Ok(())
}
