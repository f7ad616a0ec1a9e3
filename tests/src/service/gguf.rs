//! Model files: a real header, and a hole where the weights would be.

use std::io::Write;
use std::path::{Path, PathBuf};

const U32: u32 = 4;
const TEXT: u32 = 8;
/// Values of one byte, so that a tensor has as many bytes as it has values.
const I8: u32 = 24;
const LAYERS: u32 = 8;

fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// Writes a llama model of eight layers with so many bytes of weights on the GPU, trained for 8192 tokens.
pub fn write_gguf(folder: &Path, name: &str, weights: u64) -> PathBuf {
    write_gguf_with_heads(folder, name, weights, 128)
}

/// The same with heads of this length.
pub fn write_gguf_with_heads(folder: &Path, name: &str, weights: u64, length: u32) -> PathBuf {
    let numbers = [
        ("block_count", LAYERS),
        ("embedding_length", 1024),
        ("attention.head_count", 8),
        ("attention.head_count_kv", 8),
        ("attention.key_length", length),
        ("attention.value_length", length),
        ("feed_forward_length", 4096),
        ("context_length", 8192),
    ];
    let mut metadata = [string("general.architecture"), TEXT.to_le_bytes().to_vec(), string("llama")].concat();
    for (key, number) in numbers {
        metadata.extend(string(&format!("llama.{key}")));
        metadata.extend(U32.to_le_bytes());
        metadata.extend(number.to_le_bytes());
    }
    let (mut infos, mut offset) = (Vec::new(), 0u64);
    for layer in 0..LAYERS {
        infos.extend(string(&format!("blk.{layer}.attn_q.weight")));
        infos.extend(1u32.to_le_bytes());
        infos.extend((weights / u64::from(LAYERS)).to_le_bytes());
        infos.extend(I8.to_le_bytes());
        infos.extend(offset.to_le_bytes());
        offset = (offset + weights / u64::from(LAYERS)).next_multiple_of(32);
    }
    let counts = [u64::from(LAYERS), numbers.len() as u64 + 1].map(u64::to_le_bytes).concat();
    let header = [b"GGUF".to_vec(), 3u32.to_le_bytes().to_vec(), counts, metadata, infos].concat();
    let path = folder.join(name);
    let mut file = std::fs::File::create(&path).expect("a writable folder");
    file.write_all(&header).expect("room for a header");
    file.set_len((header.len() as u64).next_multiple_of(32) + offset).expect("sparse files");
    path
}
