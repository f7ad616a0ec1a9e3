//! Throws changed files at the reader until time is up.
//!
//! ```text
//! cargo run --release -p berth-estimate --example fuzz_gguf -- SECONDS [SEED] [FOLDER]
//! ```
//!
//! It starts from the files of FOLDER (the corpus of the tests unless said), changes them, reads them and estimates
//! what comes out. A file that leads to an answer that was not seen before is kept in mind and changed further. A
//! panic stops it: the file that led to it is then in `crash.gguf`. The same seed takes the same way.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use berth_estimate::gguf::{GgufModel, Header};
use berth_estimate::{Model, Options, Projector};

/// A small generator of numbers (xorshift), so that a seed is enough to repeat a run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1) as u64;
        usize::try_from(self.roll() % limit).unwrap_or(0)
    }
}

const NUMBERS: [u64; 14] = [0, 1, 2, 7, 8, 9, 12, 255, 65_535, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX];

fn change(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    for _ in 0..=dice.below(6) {
        if bytes.is_empty() {
            bytes.extend(other);
            continue;
        }
        let at = dice.below(bytes.len());
        match dice.below(8) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = dice.roll().to_le_bytes()[0],
            2 | 3 => {
                let number = NUMBERS[dice.below(NUMBERS.len())].to_le_bytes();
                let width = [1, 2, 4, 8][dice.below(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            4 => bytes.truncate(at),
            5 => {
                let end = at + dice.below((bytes.len() - at).min(64));
                bytes.drain(at..end);
            }
            6 => {
                let end = at + dice.below((bytes.len() - at).min(64));
                let copy = bytes[at..end].to_vec();
                let to = dice.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => {
                let from = dice.below(other.len());
                let end = from + dice.below((other.len() - from).min(256));
                let to = dice.below(bytes.len());
                bytes.splice(to..to, other[from..end].iter().copied());
            }
        }
    }
    bytes.truncate(1 << 16);
}

/// What came of a file, without its numbers: the way it took through the reader.
fn outcome(bytes: &[u8], length: u64) -> String {
    let header = match Header::read(Cursor::new(bytes), length) {
        Ok(header) => header,
        Err(problem) => return signature(&problem.to_string()),
    };
    let counts = (header.metadata.iter().count().min(40), header.tensors.len().min(40));
    let model = GgufModel::from_header(header);
    let _ = Projector::of(&model);
    let model = Model::Gguf { model: Box::new(model), projector: None };
    let plain = model.estimate(&Options::default());
    let other =
        Options { flash_attention: Some(false), parallel: Some(7), context: Some(100_000), ..Options::default() };
    let other = model.estimate(&other);
    let told = |result: Result<_, berth_estimate::EstimateError>| match result {
        Ok(_) => "an estimate".to_owned(),
        Err(problem) => signature(&problem.to_string()),
    };
    format!("{counts:?} {} {}", told(plain), told(other))
}

fn signature(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).take(120).collect()
}

fn corpus(folder: &PathBuf) -> std::io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().filter(|path| path.extension().is_some_and(|ending| ending == "gguf")).map(std::fs::read).collect()
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(10);
    let seed = args.next().and_then(|text| text.parse().ok()).unwrap_or(1u64).max(1);
    let usual = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let folder = args.next().map_or(usual, PathBuf::from);
    let mut known = corpus(&folder)?;
    let (mut dice, mut seen) = (Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), BTreeSet::new());
    let (start, end) = (Instant::now(), Duration::from_secs(seconds));
    let mut runs = 0u64;
    while start.elapsed() < end {
        for _ in 0..256 {
            let (first, second) = (dice.below(known.len()), dice.below(known.len()));
            let mut bytes = known[first].clone();
            change(&mut bytes, &known[second], &mut dice);
            // Data is a hole: the file says that it is longer than what is there.
            let length = bytes.len() as u64 + [0, 1 << 12, 1 << 24, 1 << 44][dice.below(4)];
            let result = std::panic::catch_unwind(|| outcome(&bytes, length));
            let Ok(result) = result else {
                std::fs::write("crash.gguf", &bytes)?;
                println!("a panic after {runs} files (seed {seed}, length {length}): see crash.gguf");
                std::process::exit(1);
            };
            if seen.insert(result) && known.len() < 4_096 {
                known.push(bytes);
            }
            runs += 1;
        }
    }
    println!("{runs} files in {seconds} s, {} different outcomes, no panic (seed {seed})", seen.len());
    Ok(())
}
