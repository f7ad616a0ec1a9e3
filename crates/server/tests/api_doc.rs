//! The table of problem codes in `docs/API.md` is the one that the code makes.

use std::path::Path;

use berth_wire::ProblemCode;

const FIRST_LINE: &str = "| code | status | meaning |";

/// With `UPDATE_DOCS=1` the test writes the table instead of comparing it.
#[test]
fn the_document_lists_every_problem_code_with_its_status() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/API.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(FIRST_LINE).unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    let wanted = format!("{before}{}\n{after}", ProblemCode::table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, wanted).unwrap();
    } else {
        assert_eq!(text, wanted, "make the table anew: UPDATE_DOCS=1 cargo test -p berth-server --test api_doc");
    }
}
