//! Writes GGUF files for tests: headers, and room for data that is never there.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs::File;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use berth_estimate::gguf::{GgufModel, Header, HeaderError, TensorType};

/// The numbers of the types of values.
pub(crate) mod kind {
    pub(crate) const U8: u32 = 0;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const U16: u32 = 2;
    pub(crate) const U32: u32 = 4;
    pub(crate) const I32: u32 = 5;
    pub(crate) const TEXT: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
}

/// A file that is being written.
#[derive(Clone)]
pub(crate) struct Gguf {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u32,
    pub(crate) tensor_count: Option<u64>,
    pub(crate) entry_count: Option<u64>,
    pub(crate) entries: u64,
    pub(crate) metadata: Vec<u8>,
    pub(crate) tensors: u64,
    pub(crate) infos: Vec<u8>,
    pub(crate) offset: u64,
}

impl Gguf {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn model(architecture: &str) -> Self {
        Self::new().text("general.architecture", architecture)
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.entry(key, kind::TEXT, &string(value))
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, kind::U32, &value.to_le_bytes())
    }

    pub(crate) fn u16(self, key: &str, value: u16) -> Self {
        self.entry(key, kind::U16, &value.to_le_bytes())
    }

    pub(crate) fn i32(self, key: &str, value: i32) -> Self {
        self.entry(key, kind::I32, &value.to_le_bytes())
    }

    pub(crate) fn list(self, key: &str, values: &[u32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.array(key, kind::U32, values.len() as u64, &bytes)
    }

    pub(crate) fn bools(self, key: &str, values: &[bool]) -> Self {
        let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
        self.array(key, kind::BOOL, values.len() as u64, &bytes)
    }

    pub(crate) fn texts(self, key: &str, values: impl Iterator<Item = String>) -> Self {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for value in values {
            bytes.extend(string(&value));
            count += 1;
        }
        self.array(key, kind::TEXT, count, &bytes)
    }

    /// An array with any count and any bytes.
    pub(crate) fn array(self, key: &str, element: u32, count: u64, bytes: &[u8]) -> Self {
        let mut value = element.to_le_bytes().to_vec();
        value.extend(count.to_le_bytes());
        value.extend(bytes);
        self.entry(key, kind::ARRAY, &value)
    }

    /// An entry with any bytes.
    pub(crate) fn entry(mut self, key: &str, kind: u32, bytes: &[u8]) -> Self {
        self.metadata.extend(string(key));
        self.metadata.extend(kind.to_le_bytes());
        self.metadata.extend(bytes);
        self.entries += 1;
        self
    }

    /// A tensor after the one before.
    pub(crate) fn tensor(self, name: &str, kind: &str, dimensions: &[u64]) -> Self {
        let spec = TensorType::ALL.iter().find(|spec| spec.name() == kind).expect("a known type");
        let values: u64 = dimensions.iter().product();
        let (offset, bytes) = (self.offset, values / spec.block() * spec.block_bytes());
        let mut next = self.tensor_at(name, spec.id(), dimensions, offset);
        next.offset = (offset + bytes).next_multiple_of(32);
        next
    }

    /// A tensor anywhere.
    pub(crate) fn tensor_at(mut self, name: &str, kind: u32, dimensions: &[u64], offset: u64) -> Self {
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
    pub(crate) fn filler(self, name: &str, bytes: u64) -> Self {
        self.tensor(name, "I8", &[bytes])
    }

    /// The bytes of the header.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.tensor_count.unwrap_or(self.tensors).to_le_bytes());
        bytes.extend(self.entry_count.unwrap_or(self.entries).to_le_bytes());
        bytes.extend(&self.metadata);
        bytes.extend(&self.infos);
        bytes
    }

    /// How long the file would be with its data.
    pub(crate) fn length(&self) -> u64 {
        (self.header().len() as u64).next_multiple_of(32) + self.offset
    }

    /// Reads it back without a file.
    pub(crate) fn read(&self) -> Result<Header, HeaderError> {
        Header::read(Cursor::new(self.header()), self.length())
    }

    /// As a model.
    pub(crate) fn into_model(self) -> GgufModel {
        GgufModel::from_header(self.read().expect("a good header"))
    }

    /// Writes a sparse file: the header is there, the data is a hole.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        let mut file = File::create(&path).expect("a writable folder");
        file.write_all(&self.header()).expect("room for a header");
        file.set_len(self.length()).expect("sparse files");
        path
    }
}

pub(crate) fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// The numbers that make a plain model.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    pub(crate) layers: u64,
    pub(crate) embedding: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) feed_forward: u64,
    pub(crate) vocabulary: u64,
    pub(crate) context: u64,
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("a small number")
}

impl Plain {
    /// The metadata of a model of this shape, with heads of 128.
    pub(crate) fn metadata(&self, architecture: &str) -> Gguf {
        self.metadata_with_heads(architecture, 128, 128)
    }

    /// The same with keys and values of these lengths.
    pub(crate) fn metadata_with_heads(&self, architecture: &str, key_length: u32, value_length: u32) -> Gguf {
        let key = |name: &str| format!("{architecture}.{name}");
        Gguf::model(architecture)
            .text("general.name", "a test")
            .u32(&key("block_count"), small(self.layers))
            .u32(&key("embedding_length"), small(self.embedding))
            .u32(&key("attention.head_count"), small(self.heads))
            .u32(&key("attention.head_count_kv"), small(self.kv_heads))
            .u32(&key("attention.key_length"), key_length)
            .u32(&key("attention.value_length"), value_length)
            .u32(&key("feed_forward_length"), small(self.feed_forward))
            .u32(&key("context_length"), small(self.context))
    }

    /// The model with all its tensors in this type, and a filler that brings the weights on the GPU to `weights`.
    pub(crate) fn with_weights(&self, architecture: &str, kind: &str, weights: u64) -> Gguf {
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
pub(crate) fn hundredths_of_gib(hundredths: u64) -> u64 {
    (hundredths << 30) / 100
}

/// A model of 100 parts with 4 GB each, a vocabulary of 150 000 and 1 400 tensors. The data is a hole.
pub(crate) fn write_large(folder: &Path) -> PathBuf {
    let shape = Plain {
        layers: 100,
        embedding: 8_192,
        heads: 64,
        kv_heads: 8,
        feed_forward: 28_672,
        vocabulary: 150_000,
        context: 131_072,
    };
    let mut first = shape.metadata("llama").texts("tokenizer.ggml.tokens", (0..150_000).map(|t| format!("token{t}")));
    first = first.texts("tokenizer.ggml.merges", (0..150_000).map(|t| format!("to ken{t}")));
    first = first.array("tokenizer.ggml.token_type", kind::I32, 150_000, &vec![0; 600_000]);
    for part in 0..100u16 {
        let file = if part == 0 { first.clone() } else { Gguf::new() };
        let mut file = file.u16("split.no", part).u16("split.count", 100).i32("split.tensors.count", 1_400);
        for tensor in 0..14 {
            file = file.filler(&format!("blk.{part}.tensor{tensor}.weight"), 4_000_000_000 / 14);
        }
        file.write(folder, &format!("large-{:05}-of-00100.gguf", part + 1));
    }
    folder.join("large-00001-of-00100.gguf")
}
