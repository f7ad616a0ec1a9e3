//! What people read, and what is stored.

use std::collections::BTreeSet;

use berth_domain::{Bytes, GpuCount};
use berth_estimate::{Estimate, Model, Options, render};

use crate::support::Plain;

fn estimate() -> Estimate {
    let shape = Plain {
        layers: 32,
        embedding: 4_096,
        heads: 32,
        kv_heads: 8,
        feed_forward: 14_336,
        vocabulary: 128_256,
        context: 8_192,
    };
    let file = shape.with_weights("llama", "Q4_K", 5 << 30);
    let counts = BTreeSet::from([1, 2, 4].map(GpuCount::new));
    let options = Options { context: Some(16_384), gpu_counts: Some(counts), ..Options::default() };
    let model = Model::Gguf { model: Box::new(file.into_model()), projector: None };
    model.estimate(&options).expect("an estimate")
}

#[test]
fn a_table_has_a_row_for_each_gpu_of_each_count() {
    insta::assert_snapshot!(render::table(&estimate()));
}

#[test]
fn a_bar_shows_how_the_parts_share_a_gpu() {
    let made = estimate();
    let one = &made.counts[&GpuCount::new(1)];
    let four = &made.counts[&GpuCount::new(4)];
    let text = [
        render::bar(one, Some(Bytes::gib(24))),
        render::bar(one, Some(Bytes::gib(6))),
        render::bar(four, None),
        render::bar(&[], None),
    ];
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn an_estimate_survives_being_stored() {
    let made = estimate();
    let text = serde_json::to_string_pretty(&made).expect("JSON");
    assert_eq!(serde_json::from_str::<Estimate>(&text).expect("an estimate"), made);
    let one = serde_json::to_value(&made.inputs).expect("JSON");
    assert_eq!(one["profile"], "llama.cpp");
    assert_eq!(one["cache_type_k"], "f16");
}

#[test]
fn what_was_asked_is_read_strictly() {
    let asked: Options =
        serde_json::from_str(r#"{"context": 8192, "cache_type_k": "q8_0", "gpu_counts": [1, 2]}"#).expect("options");
    assert_eq!(asked.context, Some(8_192));
    assert!(serde_json::from_str::<Options>(r#"{"contxt": 8192}"#).is_err(), "a typo is no wish");
}
