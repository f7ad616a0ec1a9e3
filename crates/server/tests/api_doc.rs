//! docs/API.md lists every code that the server can answer with, and none that it cannot.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so when it fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn is_code(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}

/// Every text in quotes that looks like a code, after `marker`.
fn quoted_after(source: &str, marker: &str, found: &mut BTreeSet<String>) {
    for part in source.split(marker).skip(1) {
        let text = part.split('"').nth(1).unwrap_or_default();
        if is_code(text) {
            found.insert(text.to_owned());
        }
    }
}

fn in_the_code() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        // However it is broken into lines.
        let words = std::fs::read_to_string(path).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        let source = words.replace("( ", "(");
        quoted_after(&source, "Failure::new(StatusCode::", &mut codes);
        quoted_after(&source, "Self::new(StatusCode::", &mut codes);
        for what in source.split("Failure::unknown(\"").skip(1) {
            codes.insert(format!("unknown_{}", what.split('"').next().unwrap()));
        }
    }
    let problem = read("src/http/problem.rs");
    quoted_after(&problem, "=> (\"", &mut codes);
    for part in problem.split("=> (\"").skip(1) {
        codes.insert(part.split('"').next().unwrap().to_owned());
    }
    quoted_after(&problem, "(StatusCode::", &mut codes);
    for line in read("../core/src/command.rs").lines().filter(|line| line.trim().starts_with("Self::")) {
        quoted_after(line, "=>", &mut codes);
    }
    let reasons = read("../core/src/reason.rs");
    let unplaceable = reasons.split("impl Unplaceable").nth(1).unwrap().split("\n}\n").next().unwrap();
    for line in unplaceable.lines() {
        quoted_after(line, "=>", &mut codes);
    }
    codes
}

fn in_the_document() -> BTreeSet<String> {
    let text = read("../../docs/API.md");
    let table = text.split("| code | status | meaning |").nth(1).unwrap().split("\n\n").next().unwrap();
    let first_cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    first_cells
        .flat_map(|cell| cell.split('`').map(str::to_owned).collect::<Vec<_>>())
        .filter(|text| is_code(text))
        .collect()
}

#[test]
fn every_code_is_documented_and_no_other() {
    let (code, document) = (in_the_code(), in_the_document());
    assert!(code.len() > 35, "the codes were not found: {code:?}");
    let missing: Vec<_> = code.difference(&document).collect();
    assert!(missing.is_empty(), "not in docs/API.md: {missing:?}");
    let surplus: Vec<_> = document.difference(&code).collect();
    assert!(surplus.is_empty(), "in docs/API.md, but nowhere else: {surplus:?}");
}
