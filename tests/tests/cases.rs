//! docs/CASES.md lists every acceptance case, and every case in it is tested where it says. Paths in documents exist.
//!
//! The id of a case is in the names of its tests: `r5_proof_that_comes_twice_frees_once`,
//! `R05b-proof-of-an-older-generation.toml`.
#![expect(clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// With this variable set the last column of the list is written anew instead of compared.
const UPDATE: &str = "BERTH_UPDATE_CASES";

/// Files (of Rust tests) and folders (of scenarios) that test each case.
type Places = BTreeMap<String, BTreeSet<String>>;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn list() -> PathBuf {
    repository().join("docs/CASES.md")
}

/// All files below a folder whose name has this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|end| end == extension) {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(repository()).expect("a file of the repository").display().to_string()
}

/// The case and the variant that a name begins with: `r05b_...` and `R05b-...` are `R5` and `b`.
fn case_of(name: &str) -> Option<(String, String)> {
    let mut characters = name.chars();
    let letter = characters.next().filter(char::is_ascii_alphabetic)?.to_ascii_uppercase();
    let rest = characters.as_str();
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(digits);
    let number: u32 = number.parse().ok()?;
    let end = rest.find(['_', '-']).unwrap_or(rest.len());
    let variant = &rest[..end];
    (variant.len() <= 1).then(|| (format!("{letter}{number}"), variant.to_owned()))
}

/// The names of the test functions in a file.
fn test_functions(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(name) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") {
            if is_test {
                names.extend(name.split(['(', '<']).next());
            }
            is_test = false;
        }
    }
    names
}

fn tested() -> Places {
    let mut places = Places::new();
    for folder in ["crates", "tests/src", "tests/tests", "benches"] {
        for file in files(&repository().join(folder), "rs") {
            let text = std::fs::read_to_string(&file).expect("a file of Rust");
            for (case, _) in test_functions(&text).into_iter().filter_map(case_of) {
                places.entry(case).or_default().insert(relative(&file));
            }
        }
    }
    for file in files(&repository().join("tests/scenarios"), "toml") {
        let case = file.file_name().and_then(|name| case_of(name.to_str()?));
        let (case, _) = case.unwrap_or_else(|| panic!("{} does not begin with the id of a case", relative(&file)));
        places.entry(case).or_default().insert(relative(file.parent().expect("a folder")));
    }
    places
}

/// The cells of a row of the list: the case, its sentence, its places.
fn cells(line: &str) -> Option<[&str; 3]> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let row = [cells.next()?, cells.next()?, cells.next().unwrap_or_default()];
    case_of(row[0]).is_some_and(|(case, _)| case == row[0]).then_some(row)
}

#[test]
fn every_case_in_the_name_of_a_test_or_scenario_is_listed_once() {
    let text = std::fs::read_to_string(list()).expect("docs/CASES.md");
    let listed: Vec<[&str; 3]> = text.lines().filter_map(cells).collect();
    let names: BTreeSet<&str> = listed.iter().map(|row| row[0]).collect();
    assert_eq!(names.len(), listed.len(), "a case is listed twice");
    let tested = tested();
    let unlisted: Vec<_> = tested.iter().filter(|(case, _)| !names.contains(case.as_str())).collect();
    assert!(unlisted.is_empty(), "write a sentence into docs/CASES.md for {unlisted:?}");
    let without: Vec<&str> = listed.iter().filter(|row| row[1].len() < 20).map(|row| row[0]).collect();
    assert!(without.is_empty(), "no sentence says what must be true: {without:?}");
}

#[test]
fn every_listed_case_is_tested_exactly_where_the_list_says() {
    let text = std::fs::read_to_string(list()).expect("docs/CASES.md");
    let tested = tested();
    let mut wrong = Vec::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        let Some([case, sentence, places]) = cells(line) else {
            lines.push(line.to_owned());
            continue;
        };
        let found = tested.get(case).into_iter().flatten().map(|place| format!("`{place}`")).collect::<Vec<_>>();
        assert!(!found.is_empty(), "no test and no scenario has {case} in its name");
        let found = found.join(", ");
        if found != places {
            wrong.push(format!("{case}: the list says {places}, found are {found}"));
        }
        lines.push(format!("| {case} | {sentence} | {found} |"));
    }
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(list(), lines.join("\n") + "\n").expect("docs/CASES.md can be written");
        return;
    }
    assert!(wrong.is_empty(), "{}\nto write it: {UPDATE}=1 cargo test -p berth-tests --test cases", wrong.join("\n"));
}

#[test]
fn every_scenario_lies_in_the_folder_of_a_subject_under_its_own_id() {
    let scenarios = repository().join("tests/scenarios");
    for file in files(&scenarios, "toml") {
        let name = relative(&file);
        assert_eq!(file.parent().and_then(Path::parent), Some(scenarios.as_path()), "{name}: which subject is it?");
        let text = std::fs::read_to_string(&file).expect("a scenario");
        let id = text.lines().find_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"'));
        let stated = id.and_then(case_of).unwrap_or_else(|| panic!("{name} has no id of a case"));
        assert_eq!(file.file_name().and_then(|name| case_of(name.to_str()?)), Some(stated), "{name}");
    }
}

#[test]
fn every_path_in_the_documents_exists() {
    let mut pages = files(&repository().join("docs"), "md");
    pages.push(repository().join("README.md"));
    let mut checked = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for path in text.split('`').skip(1).step_by(2).filter(|quoted| is_path(quoted)) {
            checked += 1;
            assert!(repository().join(path).exists(), "{} names {path}, which does not exist", relative(&page));
        }
    }
    assert!(checked > 100, "only {checked} paths were found");
}

/// Whether a quoted text is a path of the repository, rather than a command or a pattern.
fn is_path(quoted: &str) -> bool {
    let begins = ["tests/", "crates/", "benches/", "config/", "deploy/", "docs/"];
    let is_pattern = quoted.contains(|c: char| c.is_whitespace() || "*{".contains(c)) || quoted.contains("SUBJECT");
    begins.iter().any(|begin| quoted.starts_with(begin)) && !is_pattern
}
