//! A picture of fills: how much of the fleet is allocated against the demand that arrived.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const MARGIN: f64 = 48.0;
/// The first percent that is shown: below, every strategy places everything.
const FROM: f64 = 60.0;
const TO: f64 = 130.0;
const COLOURS: [&str; 4] = ["#1b6ca8", "#c0392b", "#2e8b57", "#8e6bbf"];

/// Draws one curve for each name: for each percent of arrived demand, the percent that is allocated.
#[must_use]
pub fn draw(title: &str, curves: &[(String, Vec<f64>)]) -> String {
    let mut svg = String::new();
    let across = |percent: f64| MARGIN + (percent - FROM) / (TO - FROM) * (WIDTH - 2.0 * MARGIN);
    let up = |percent: f64| HEIGHT - MARGIN - (percent - FROM) / (100.0 - FROM) * (HEIGHT - 2.0 * MARGIN);
    let _ = writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>
<text x="{}" y="24" text-anchor="middle" font-size="14">{title}</text>"##,
        WIDTH / 2.0
    );
    for percent in [60.0, 70.0, 80.0, 90.0, 100.0] {
        let (y, left, right) = (up(percent), across(FROM), across(TO));
        let _ = writeln!(
            svg,
            r##"<line x1="{left:.1}" y1="{y:.1}" x2="{right:.1}" y2="{y:.1}" stroke="#dddddd"/>
<text x="{:.1}" y="{:.1}" text-anchor="end">{percent} %</text>"##,
            left - 6.0,
            y + 4.0
        );
    }
    for percent in [60.0, 80.0, 100.0, 120.0] {
        let x = across(percent);
        let _ = writeln!(svg, r##"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{percent} %</text>"##, HEIGHT - 30.0);
    }
    let _ = writeln!(
        svg,
        r##"<text x="{}" y="{}" text-anchor="middle">demand that arrived, of the fleet's GPUs</text>"##,
        WIDTH / 2.0,
        HEIGHT - 10.0
    );
    for (number, (name, curve)) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let shown = curve.iter().enumerate().filter(|(percent, _)| (FROM..=TO).contains(&(*percent as f64)));
        let points: Vec<String> =
            shown.map(|(percent, used)| format!("{:.1},{:.1}", across(percent as f64), up(*used))).collect();
        let y = 60.0 + 18.0 * number as f64;
        let _ = writeln!(
            svg,
            r##"<polyline fill="none" stroke="{colour}" stroke-width="2" points="{}"/>
<line x1="64" y1="{:.1}" x2="84" y2="{:.1}" stroke="{colour}" stroke-width="2"/>
<text x="90" y="{y:.1}">{name}</text>"##,
            points.join(" "),
            y - 4.0,
            y - 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}
