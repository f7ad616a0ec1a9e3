//! Text for reports.

use berth_domain::ReasonText;

/// Converts any text to a reason text: control characters become blanks, and a long text is cut.
pub(crate) fn reason_text(text: &str) -> ReasonText {
    // A character has at most four bytes, and a reason at most 1024.
    let plain: String = text.chars().take(256).map(|c| if c.is_control() { ' ' } else { c }).collect();
    ReasonText::new(plain).unwrap_or_else(|_| unreachable!("it is short and has no control characters"))
}
