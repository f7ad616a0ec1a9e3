//! Models in several files.

use std::path::{Path, PathBuf};

use berth_estimate::gguf::{GgufError, GgufModel};

use crate::support::Gguf;

/// Writes a model of `count` parts with two tensors each.
fn write(folder: &Path, count: u16) -> Vec<PathBuf> {
    (0..count).map(|no| part(no, count).write(folder, &name(no, count))).collect()
}

fn name(no: u16, count: u16) -> String {
    format!("model-{:05}-of-{count:05}.gguf", no + 1)
}

fn part(no: u16, count: u16) -> Gguf {
    let first = if no == 0 { Gguf::model("llama").u32("llama.block_count", 8) } else { Gguf::new() };
    first
        .u16("split.no", no)
        .u16("split.count", count)
        .i32("split.tensors.count", i32::from(count) * 2)
        .tensor(&format!("blk.{no}.a.weight"), "F32", &[32])
        .tensor(&format!("blk.{no}.b.weight"), "Q8_0", &[64, 2])
}

#[test]
fn any_part_leads_to_all() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in write(folder.path(), 3) {
        let model = GgufModel::open(&path).expect("three parts");
        assert_eq!(model.files(), 3);
        assert_eq!(model.tensors().len(), 6);
        assert_eq!(model.tensor("blk.2.b.weight").map(|tensor| tensor.bytes()), Some(136));
        assert_eq!(model.metadata().count("llama.block_count"), Some(8), "the first part's metadata");
    }
}

#[test]
fn a_missing_part_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = write(folder.path(), 3);
    std::fs::remove_file(&paths[1]).expect("a file to remove");
    let problem = GgufModel::open(&paths[0]).expect_err("a refusal").to_string();
    assert!(problem.contains("model-00002-of-00003.gguf"), "{problem}");
}

#[test]
fn parts_in_each_others_places_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = write(folder.path(), 3);
    std::fs::copy(&paths[1], &paths[2]).expect("a copy");
    let problem = GgufModel::open(&paths[0]).expect_err("a refusal");
    assert!(matches!(problem, GgufError::PartMismatch { no: 2, expected: 3, .. }), "{problem}");
}

#[cfg(unix)]
#[test]
fn parts_that_are_one_file_under_many_names_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = part(0, 3).write(folder.path(), &name(0, 3));
    for no in 1..3 {
        std::os::unix::fs::symlink(&first, folder.path().join(name(no, 3))).expect("a link");
    }
    assert!(matches!(GgufModel::open(&first), Err(GgufError::PartMismatch { .. })));
    let circle = folder.path().join("circle.gguf");
    std::os::unix::fs::symlink(&circle, &circle).expect("a link to itself");
    assert!(matches!(GgufModel::open(&circle), Err(GgufError::File { .. })));
}

#[test]
fn the_same_tensor_in_two_parts_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = part(0, 2).write(folder.path(), &name(0, 2));
    let again = Gguf::new().u16("split.no", 1).u16("split.count", 2).tensor("blk.0.a.weight", "F32", &[32]);
    again.write(folder.path(), &name(1, 2));
    assert!(matches!(GgufModel::open(&first), Err(GgufError::DuplicateTensor(name)) if name == "blk.0.a.weight"));
}

#[test]
fn parts_that_do_not_add_up_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = part(0, 2).write(folder.path(), &name(0, 2));
    Gguf::new().u16("split.no", 1).u16("split.count", 2).write(folder.path(), &name(1, 2));
    assert!(matches!(GgufModel::open(&first), Err(GgufError::TensorCount { found: 2, expected: 4 })));
}

#[test]
fn a_part_without_a_number_in_its_name_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["model.gguf", "model-1-of-3.gguf", "model-00001-of-00002.gguf", "-of-00003.gguf"] {
        let path = part(0, 3).write(folder.path(), name);
        assert!(matches!(GgufModel::open(&path), Err(GgufError::PartName { count: 3, .. })), "{name}");
    }
    let many = Gguf::new().u16("split.count", u16::MAX).write(folder.path(), "model-00001-of-65535.gguf");
    assert!(matches!(GgufModel::open(&many), Err(GgufError::TooManyParts { .. })));
}
