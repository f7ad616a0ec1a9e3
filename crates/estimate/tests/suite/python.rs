//! Files that the reference package in Python wrote.

use std::path::{Path, PathBuf};
use std::process::Command;

use berth_estimate::gguf::{GgufError, GgufModel, HeaderError, TensorType, Value};
use serde_json::Value as Json;

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// A value as the JSON that the script writes for it.
fn as_json(value: &Value) -> Json {
    match value {
        Value::Unsigned(number) => Json::from(*number),
        Value::Signed(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Bool(truth) => Json::from(*truth),
        Value::Text(text) => Json::from(text.as_ref()),
        Value::List(list) => list.iter().map(as_json).collect(),
        Value::LongText { length } | Value::LongList { length } => serde_json::json!({ "length": length }),
    }
}

fn compare(folder: &Path) {
    let text = std::fs::read_to_string(folder.join("every_type.json")).expect("what Python read");
    let expected: Json = serde_json::from_str(&text).expect("JSON");
    let model = GgufModel::open(&folder.join("every_type.gguf")).expect("a good file");
    let metadata = expected["metadata"].as_object().expect("an object");
    for (key, value) in metadata {
        assert_eq!(model.metadata().get(key).map(as_json).as_ref(), Some(value), "{key}");
    }
    let kinds =
        ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "string", "uint64", "int64", "float64"];
    assert!(kinds.iter().all(|kind| metadata.contains_key(&format!("t.{kind}"))));
    let tensors = expected["tensors"].as_array().expect("a list");
    for tensor in tensors {
        let name = tensor["name"].as_str().expect("a name");
        let read = model.tensor(name).expect(name);
        assert_eq!(Json::from(read.kind().id()), tensor["type"], "{name}");
        assert_eq!(Json::from(read.bytes()), tensor["bytes"], "{name}");
        assert_eq!(Json::from(read.offset()), tensor["offset"], "{name}");
        let shape = tensor["shape"].as_array().expect("a shape");
        let dimensions: Vec<Json> = read.dimensions()[..shape.len()].iter().copied().map(Json::from).collect();
        assert_eq!(&dimensions, shape, "{name}");
        assert_eq!(name, format!("tensor.{}", read.kind().name()));
    }
    // One type is newer than the package.
    let missing = TensorType::ALL.iter().filter(|kind| model.tensor(&format!("tensor.{}", kind.name())).is_none());
    let missing: Vec<&str> = missing.map(|kind| kind.name()).collect();
    assert!(missing.is_empty() || missing == ["Q2_0"], "{missing:?}");
    assert_eq!(model.tensors().len(), tensors.len());
    let big = GgufModel::open(&folder.join("big_endian.gguf"));
    assert!(matches!(big, Err(GgufError::File { problem: HeaderError::BigEndian, .. })), "{big:?}");
}

#[test]
fn every_type_that_the_reference_package_wrote_is_read() {
    compare(&tests().join("fixtures/python"));
}

/// The same with the package that is installed, where one is. `BERTH_TEST_PYTHON` names the interpreter.
#[test]
fn every_type_that_the_installed_package_writes_is_read() {
    let python = std::env::var("BERTH_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_gguf = Command::new(&python).args(["-c", "import gguf, numpy"]).output();
    if !has_gguf.is_ok_and(|output| output.status.success()) {
        eprintln!("{python} has no package gguf: only the files in the repository were read");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = tests().join("python/every_type.py");
    let output = Command::new(&python).arg(script).arg(folder.path()).output().expect("a script that runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    compare(folder.path());
}
