//! Files that lie.

use std::io::Cursor;
use std::path::PathBuf;

use berth_estimate::gguf::{GgufModel, Header, HeaderError};
use berth_estimate::{Model, Options};
use proptest::prelude::*;

use crate::support::{Gguf, Plain, kind, string};

fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
    Header::read(Cursor::new(bytes), bytes.len() as u64)
}

fn refused(file: &Gguf) -> HeaderError {
    file.read().err().unwrap_or_else(|| panic!("a hostile file was taken"))
}

#[test]
fn a_file_of_another_kind_is_refused_as_such() {
    for bytes in [&b""[..], b"G", b"GGUF", b"GGUF\x03\0\0", b"PK\x03\x04 something else entirely"] {
        assert!(matches!(read(bytes), Err(HeaderError::NotGguf)), "{bytes:?}");
    }
}

#[test]
fn other_versions_and_the_other_byte_order_are_refused_by_name() {
    let mut file = Gguf::model("llama");
    for version in [0, 1, 4, 0x0101_0101] {
        file.version = version;
        assert!(matches!(refused(&file), HeaderError::Version(said) if said == version));
    }
    for big_endian in [1u32, 2, 3] {
        file.version = big_endian.swap_bytes();
        assert!(matches!(refused(&file), HeaderError::BigEndian));
    }
    file.magic = *b"FUGG";
    assert!(matches!(refused(&file), HeaderError::BigEndian));
    for version in [2, 3] {
        let good = Gguf { magic: *b"GGUF", version, ..file.clone() };
        assert_eq!(good.read().map(|header| header.version).ok(), Some(version));
    }
}

#[test]
fn counts_beyond_the_file_are_refused_before_anything_is_made() {
    for count in [1 << 20, 1 << 40, u64::MAX] {
        let tensors = Gguf { tensor_count: Some(count), ..Gguf::model("llama") };
        assert!(matches!(refused(&tensors), HeaderError::BeyondFile { what: "tensors", .. }));
        let keys = Gguf { entry_count: Some(count), ..Gguf::model("llama") };
        assert!(matches!(refused(&keys), HeaderError::BeyondFile { what: "keys", .. }));
        let array = Gguf::model("llama").array("a", kind::U32, count, &[0; 64]);
        assert!(matches!(refused(&array), HeaderError::BeyondFile { what: "an array", .. }));
        let text = Gguf::model("llama").entry("a", kind::TEXT, &count.to_le_bytes());
        assert!(matches!(refused(&text), HeaderError::BeyondFile { .. }));
    }
}

#[test]
fn more_tensors_or_metadata_than_a_model_has_are_refused() {
    let file = Gguf { tensor_count: Some(16_385), ..Gguf::model("llama").entry("a", kind::TEXT, &string("")) };
    let length = 1 << 40;
    let result = Header::read(Cursor::new(file.header()), length);
    assert!(matches!(result, Err(HeaderError::TooMany { what: "tensors", .. })));
    let mut file = Gguf::model("llama");
    for number in 0..40_000 {
        file = file.u32(&format!("key.{number}"), number);
    }
    assert!(matches!(refused(&file), HeaderError::TooMany { what: "bytes of small metadata", .. }));
}

#[test]
fn names_that_no_model_has_are_refused() {
    let long = "x".repeat(70_000);
    assert!(matches!(refused(&Gguf::model("llama").u32(&long, 1)), HeaderError::NameTooLong { what: "a key", .. }));
    let tensor = Gguf::model("llama").tensor(&long, "F32", &[32]);
    assert!(matches!(refused(&tensor), HeaderError::NameTooLong { what: "a tensor's name", .. }));
    let mut bytes = Gguf::model("llama").u32("keyname", 1).header();
    let at = bytes.windows(7).position(|window| window == b"keyname").expect("the key");
    bytes[at] = 0xff;
    assert!(matches!(read(&bytes), Err(HeaderError::NotText("a key"))));
}

#[test]
fn values_that_the_format_does_not_have_are_refused() {
    assert!(matches!(refused(&Gguf::new().entry("a", 13, &[0; 8])), HeaderError::ValueType(13)));
    assert!(matches!(refused(&Gguf::new().entry("a", kind::BOOL, &[2])), HeaderError::NotABool(2)));
    assert!(matches!(refused(&Gguf::new().array("a", 99, 0, &[])), HeaderError::ValueType(99)));
    assert!(matches!(refused(&Gguf::new().u32("a", 1).u32("a", 2)), HeaderError::DuplicateKey(key) if key == "a"));
}

/// An array of one array of one array, so many deep.
fn nested(depth: u32, innermost: u64) -> Gguf {
    let mut bytes = kind::U8.to_le_bytes().to_vec();
    bytes.extend(innermost.to_le_bytes());
    for _ in 1..depth {
        let inner = std::mem::replace(&mut bytes, kind::ARRAY.to_le_bytes().to_vec());
        bytes.extend(1u64.to_le_bytes());
        bytes.extend(inner);
    }
    Gguf::model("llama").entry("nested", kind::ARRAY, &bytes)
}

#[test]
fn arrays_may_be_nested_but_not_for_ever() {
    for depth in 1..=4 {
        assert!(nested(depth, 0).read().is_ok(), "{depth} deep");
    }
    for depth in [5, 50, 5_000] {
        assert!(matches!(refused(&nested(depth, 0)), HeaderError::TooDeep { .. }), "{depth} deep");
    }
    assert!(matches!(refused(&nested(3, u64::MAX)), HeaderError::BeyondFile { .. }));
}

#[test]
fn tensors_with_sizes_that_cannot_be_are_refused() {
    let with = |kind: u32, dimensions: &[u64]| Gguf::model("llama").tensor_at("t", kind, dimensions, 0);
    for dimensions in [&[u64::MAX, 2][..], &[1 << 32, 1 << 32], &[1 << 62, 4, 4, 4], &[1 << 63]] {
        assert!(matches!(refused(&with(0, dimensions)), HeaderError::TensorSize(_)), "{dimensions:?}");
    }
    assert!(matches!(refused(&with(0, &[1; 5])), HeaderError::Dimensions { dimensions: 5, .. }));
    assert!(matches!(refused(&with(2, &[33])), HeaderError::BrokenRow { row: 33, block: 32, .. }));
    for given_up in [4, 5, 31, 36, 43, u32::MAX] {
        assert!(matches!(refused(&with(given_up, &[32])), HeaderError::TensorType { kind, .. } if kind == given_up));
    }
}

#[test]
fn tensors_where_there_is_no_room_are_refused() {
    let two = |first: u64, second: u64| {
        let file = Gguf::model("llama").tensor_at("a", 0, &[32], first).tensor_at("b", 0, &[32], second);
        let length = (file.header().len() as u64).next_multiple_of(32) + 256;
        Header::read(Cursor::new(file.header()), length)
    };
    assert!(two(0, 128).is_ok());
    let problem = |result: Result<Header, HeaderError>| match result {
        Err(HeaderError::Offset { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(two(0, 160)), "beyond the file");
    assert_eq!(problem(two(0, u64::MAX - 31)), "beyond the file");
    assert_eq!(problem(two(0, 96)), "inside another tensor");
    assert_eq!(problem(two(64, 64)), "inside another tensor");
    assert_eq!(problem(two(0, 130)), "not aligned");
    let twice = Gguf::model("llama").tensor("t", "F32", &[32]).tensor("t", "F32", &[32]);
    assert!(matches!(refused(&twice), HeaderError::DuplicateTensor(name) if name == "t"));
    for alignment in [0, 3, 33] {
        let file = Gguf::model("llama").u32("general.alignment", alignment);
        assert!(matches!(refused(&file), HeaderError::Alignment(said) if said == u64::from(alignment)));
    }
}

#[test]
fn a_header_that_never_ends_is_given_up() {
    // Empty texts in a file that is all hole: each is eight zeros.
    let file = Gguf::model("llama").array("a", kind::TEXT, 1 << 34, &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = file.write(folder.path(), "endless.gguf");
    std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(1 << 38)).expect("a sparse file");
    let problem = GgufModel::open(&path).expect_err("a refusal").to_string();
    assert!(problem.contains("has a header of more than"), "{problem}");
}

#[test]
fn shapes_that_no_model_has_are_refused() {
    let shape = Plain { layers: 1, embedding: 64, heads: 2, kv_heads: 1, feed_forward: 64, vocabulary: 8, context: 64 };
    let said = |key: &str, value: u32| {
        let file = Gguf::model("llama").u32(&format!("llama.{key}"), value);
        let file = ["block_count", "embedding_length", "context_length"]
            .into_iter()
            .filter(|other| *other != key)
            .fold(file, |file, other| file.u32(&format!("llama.{other}"), 64));
        file.into_model().shape().err().map(|problem| problem.to_string())
    };
    assert!(shape.metadata("llama").into_model().shape().is_ok());
    for key in ["block_count", "embedding_length", "attention.head_count", "attention.key_length"] {
        let problem = said(key, u32::MAX).unwrap_or_default();
        assert!(problem.contains(key) && problem.contains("4294967295"), "{problem}");
    }
    let problem = Gguf::model("llama").list("llama.attention.head_count", &[1, 2]);
    let problem = problem.u32("llama.block_count", 3).u32("llama.embedding_length", 64).into_model().shape();
    assert!(problem.is_err_and(|problem| problem.to_string().contains("lists 2 values")));
}

fn good_file() -> Vec<u8> {
    let shape =
        Plain { layers: 2, embedding: 256, heads: 2, kv_heads: 1, feed_forward: 256, vocabulary: 64, context: 512 };
    let file = shape
        .metadata("gemma3")
        .u32("gemma3.attention.sliding_window", 64)
        .texts("tokenizer.ggml.tokens", (0..64).map(|token| format!("t{token}")))
        .bools("gemma3.attention.sliding_window_pattern", &[true, false])
        .tensor("token_embd.weight", "Q4_0", &[256, 64])
        .tensor("blk.0.attn_q.weight", "Q4_K", &[256, 256])
        .tensor("blk.1.attn_q.weight", "F16", &[256, 256]);
    let mut bytes = file.header();
    bytes.resize(usize::try_from(file.length()).expect("small"), 0);
    bytes
}

/// Whatever comes out of a file goes on to an estimate.
fn estimate_of(bytes: &[u8], length: u64) {
    let Ok(header) = Header::read(Cursor::new(bytes), length) else { return };
    let model = Model::Gguf { model: Box::new(GgufModel::from_header(header)), projector: None };
    let _ = model.estimate(&Options::default());
    let _ = model.estimate(&Options { flash_attention: Some(false), parallel: Some(65_536), ..Options::default() });
}

#[test]
fn the_fuzzers_corpus_is_refused_or_read_within_limits() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let files = std::fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("an entry").path());
    let files: Vec<PathBuf> = files.filter(|path| path.extension() == Some("gguf".as_ref())).collect();
    assert!(files.len() >= 8, "the corpus is there");
    for file in files {
        let bytes = std::fs::read(file).expect("a readable file");
        // As it is, and with holes where its data would be.
        for hole in [0, 1 << 12, 1 << 24, 1 << 44] {
            estimate_of(&bytes, bytes.len() as u64 + hole);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_harm(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        estimate_of(&bytes, bytes.len() as u64);
        let mut with_magic = b"GGUF\x03\0\0\0".to_vec();
        with_magic.extend(bytes);
        estimate_of(&with_magic, 1 << 30);
    }

    #[test]
    fn no_change_to_a_good_file_harms(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = good_file();
        for (place, value) in changes {
            let at = place.index(bytes.len());
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        estimate_of(&bytes, bytes.len() as u64);
    }

    #[test]
    fn no_number_in_a_good_file_harms(place in any::<prop::sample::Index>(), number in prop_oneof![
        any::<u64>(), Just(u64::MAX), Just(1 << 63), Just(1 << 32), Just(u64::from(u32::MAX)), 0u64..8,
    ], wide in any::<bool>()) {
        let mut bytes = good_file();
        let width = if wide { 8 } else { 4 };
        let at = place.index(bytes.len() - width);
        bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
        estimate_of(&bytes, bytes.len() as u64);
    }
}
