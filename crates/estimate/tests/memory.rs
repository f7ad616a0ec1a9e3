//! How much memory reading takes, whatever a file says. A test of its own: its allocator counts everything.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "support/mod.rs"]
mod support;

use std::alloc::System;
use std::sync::Mutex;

use berth_estimate::gguf::GgufModel;
use berth_estimate::{Model, Options};
use cap::Cap;
use support::{Gguf, write_large};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// One at a time: the allocator counts for all.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs something under a limit on what it may allocate beside what is there. More would abort the test.
fn within<T>(limit: usize, run: impl FnOnce() -> T) -> T {
    let before = ALLOCATOR.allocated();
    ALLOCATOR.set_limit(before + limit).expect("room for the limit");
    let result = run();
    ALLOCATOR.set_limit(usize::MAX).expect("no limit");
    result
}

const MIB: usize = 1 << 20;

#[test]
fn the_headers_of_400_gb_in_100_parts_take_less_than_20_mib() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let path = write_large(folder.path());
    let model = within(20 * MIB, || Model::open(&path)).expect("a hundred parts");
    let made = within(20 * MIB, || model.estimate(&Options::default())).expect("an estimate");
    assert_eq!(made.model.files, 100);
    assert!(made.model.weights.get() > 399_000_000_000);
    // Reading needs far less than it may.
    within(2 * MIB, || Model::open(&path)).expect("a hundred parts");
}

#[test]
fn files_that_ask_for_much_memory_get_little() {
    let _alone = ALONE.lock();
    let long = vec![b'x'; 30_000];
    let mut many_keys = Gguf::model("llama");
    let mut many_lists = Gguf::model("llama");
    let mut many_tensors = Gguf::model("llama");
    for number in 0..2_000 {
        many_keys = many_keys.u32(&format!("{number}{}", String::from_utf8_lossy(&long)), 1);
        many_lists = many_lists.list(&format!("list{number}"), &[7; 4_096]);
    }
    for number in 0..16_384 {
        many_tensors = many_tensors.tensor(&format!("{}{number:05}", "x".repeat(122)), "F32", &[32]);
    }
    let tokens = Gguf::model("llama").texts("tokens", (0..1_000_000).map(|token| format!("token{token}")));
    let template = Gguf::model("llama").text("template", &"y".repeat(50_000_000));
    let claims = Gguf { tensor_count: Some(16_000), ..Gguf::model("llama") };
    let folder = tempfile::tempdir().expect("a folder");
    let files = [many_keys, many_lists, many_tensors, tokens, template, claims];
    for (number, file) in files.into_iter().enumerate() {
        let path = file.write(folder.path(), &format!("{number}.gguf"));
        std::fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|opened| opened.set_len(file.length() + (1 << 30)))
            .expect("a sparse file");
        drop(file);
        // The limit is what the promise says: a few MiB. Beyond it the test would abort.
        let _ = within(6 * MIB, || GgufModel::open(&path).map(|_| ()));
    }
}
