//! Writes GGUF files for tests: headers, and room for data that is never there.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs::File;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use berth_estimate::gguf::{GgufModel, Header, HeaderError, TensorType};

/// The numbers of the types of values.
pub mod kind {
    pub const U8: u32 = 0;
    pub const BOOL: u32 = 7;
    pub const U16: u32 = 2;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const TEXT: u32 = 8;
    pub const ARRAY: u32 = 9;
}

/// A file that is being written.
#[derive(Clone)]
pub struct Gguf {
    pub magic: [u8; 4],
    pub version: u32,
    pub tensor_count: Option<u64>,
    pub entry_count: Option<u64>,
    entries: u64,
    metadata: Vec<u8>,
    tensors: u64,
    infos: Vec<u8>,
    offset: u64,
}

impl Gguf {
    pub fn new() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            entry_count: None,
            entries: 0,
            metadata: Vec::new(),
            tensors: 0,
            infos: Vec::new(),
            offset: 0,
        }
    }

    /// A model of this architecture.
    pub fn model(architecture: &str) -> Self {
        Self::new().text("general.architecture", architecture)
    }

    pub fn text(self, key: &str, value: &str) -> Self {
        self.entry(key, kind::TEXT, &string(value))
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, kind::U32, &value.to_le_bytes())
    }

    pub fn u16(self, key: &str, value: u16) -> Self {
        self.entry(key, kind::U16, &value.to_le_bytes())
    }

    pub fn i32(self, key: &str, value: i32) -> Self {
        self.entry(key, kind::I32, &value.to_le_bytes())
    }

    pub fn list(self, key: &str, values: &[u32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.array(key, kind::U32, values.len() as u64, &bytes)
    }

    pub fn bools(self, key: &str, values: &[bool]) -> Self {
        let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
        self.array(key, kind::BOOL, values.len() as u64, &bytes)
    }

    pub fn texts(self, key: &str, values: impl Iterator<Item = String>) -> Self {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for value in values {
            bytes.extend(string(&value));
            count += 1;
        }
        self.array(key, kind::TEXT, count, &bytes)
    }

    /// An array with any count and any bytes.
    pub fn array(self, key: &str, element: u32, count: u64, bytes: &[u8]) -> Self {
        let mut value = element.to_le_bytes().to_vec();
        value.extend(count.to_le_bytes());
        value.extend(bytes);
        self.entry(key, kind::ARRAY, &value)
    }

    /// An entry with any bytes.
    pub fn entry(mut self, key: &str, kind: u32, bytes: &[u8]) -> Self {
        self.metadata.extend(string(key));
        self.metadata.extend(kind.to_le_bytes());
        self.metadata.extend(bytes);
        self.entries += 1;
        self
    }

    /// A tensor after the one before.
    pub fn tensor(self, name: &str, kind: &str, dimensions: &[u64]) -> Self {
        let spec = TensorType::ALL.iter().find(|spec| spec.name() == kind).expect("a known type");
        let values: u64 = dimensions.iter().product();
        let (offset, bytes) = (self.offset, values / spec.block() * spec.block_bytes());
        let mut next = self.tensor_at(name, spec.id(), dimensions, offset);
        next.offset = (offset + bytes).next_multiple_of(32);
        next
    }

    /// A tensor anywhere.
    pub fn tensor_at(mut self, name: &str, kind: u32, dimensions: &[u64], offset: u64) -> Self {
        self.infos.extend(string(name));
        self.infos.extend(u32::try_from(dimensions.len()).expect("few").to_le_bytes());
        for dimension in dimensions {
            self.infos.extend(dimension.to_le_bytes());
        }
        self.infos.extend(kind.to_le_bytes());
        self.infos.extend(offset.to_le_bytes());
        self.tensors += 1;
        self
    }

    /// A tensor of so many bytes, about, in values of one byte.
    pub fn filler(self, name: &str, bytes: u64) -> Self {
        self.tensor(name, "I8", &[bytes])
    }

    /// The bytes of the header.
    pub fn header(&self) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.tensor_count.unwrap_or(self.tensors).to_le_bytes());
        bytes.extend(self.entry_count.unwrap_or(self.entries).to_le_bytes());
        bytes.extend(&self.metadata);
        bytes.extend(&self.infos);
        bytes
    }

    /// How long the file would be with its data.
    pub fn length(&self) -> u64 {
        (self.header().len() as u64).next_multiple_of(32) + self.offset
    }

    /// Reads it back without a file.
    pub fn read(&self) -> Result<Header, HeaderError> {
        Header::read(Cursor::new(self.header()), self.length())
    }

    /// As a model.
    pub fn into_model(self) -> GgufModel {
        GgufModel::from_header(self.read().expect("a good header"))
    }

    /// Writes a sparse file: the header is there, the data is a hole.
    pub fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        let mut file = File::create(&path).expect("a writable folder");
        file.write_all(&self.header()).expect("room for a header");
        file.set_len(self.length()).expect("sparse files");
        path
    }
}

pub fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// The numbers that make a plain model.
#[derive(Clone, Copy)]
pub struct Plain {
    pub layers: u64,
    pub embedding: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub feed_forward: u64,
    pub vocabulary: u64,
    pub context: u64,
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("a small number")
}

impl Plain {
    /// The metadata of a model of this shape, with heads of 128.
    pub fn metadata(&self, architecture: &str) -> Gguf {
        let key = |name: &str| format!("{architecture}.{name}");
        Gguf::model(architecture)
            .text("general.name", "a test")
            .u32(&key("block_count"), small(self.layers))
            .u32(&key("embedding_length"), small(self.embedding))
            .u32(&key("attention.head_count"), small(self.heads))
            .u32(&key("attention.head_count_kv"), small(self.kv_heads))
            .u32(&key("attention.key_length"), 128)
            .u32(&key("attention.value_length"), 128)
            .u32(&key("feed_forward_length"), small(self.feed_forward))
            .u32(&key("context_length"), small(self.context))
    }

    /// The model with all its tensors in this type, and a filler that brings the weights on the GPU to `weights`.
    pub fn with_weights(&self, architecture: &str, kind: &str, weights: u64) -> Gguf {
        let mut file =
            self.metadata(architecture).tensor("token_embd.weight", kind, &[self.embedding, self.vocabulary]);
        let before = file.offset;
        file = file.tensor("output_norm.weight", "F32", &[self.embedding]);
        file = file.tensor("output.weight", kind, &[self.embedding, self.vocabulary]);
        let (queries, keys) = (self.heads * 128, self.kv_heads * 128);
        for layer in 0..self.layers {
            let name = |tensor: &str| format!("blk.{layer}.{tensor}.weight");
            file = file
                .tensor(&name("attn_norm"), "F32", &[self.embedding])
                .tensor(&name("attn_q"), kind, &[self.embedding, queries])
                .tensor(&name("attn_k"), kind, &[self.embedding, keys])
                .tensor(&name("attn_v"), kind, &[self.embedding, keys])
                .tensor(&name("attn_output"), kind, &[queries, self.embedding])
                .tensor(&name("ffn_norm"), "F32", &[self.embedding])
                .tensor(&name("ffn_gate"), kind, &[self.embedding, self.feed_forward])
                .tensor(&name("ffn_up"), kind, &[self.embedding, self.feed_forward])
                .tensor(&name("ffn_down"), kind, &[self.feed_forward, self.embedding]);
        }
        let missing = weights.checked_sub(file.offset - before).expect("a type that leaves room for the filler");
        file.filler("filler.weight", missing)
    }
}

/// So many hundredths of a GiB in bytes.
pub fn hundredths_of_gib(hundredths: u64) -> u64 {
    (hundredths << 30) / 100
}
