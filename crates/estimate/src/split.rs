//! Splitting layers over GPUs.

pub use berth_domain::estimate::LayerSpan;

/// Splits the layers over GPUs of equal weight, as llama.cpp does: the output counts as one layer more, and layer `i`
/// of `n` goes where `i / n` falls. So the first GPU has the odd layer, and the last has the output.
///
/// llama.cpp computes in single precision, and so does this: a rounding decides where a layer goes.
#[must_use]
pub fn by_layer(layers: u16, gpus: u16) -> Vec<LayerSpan> {
    let all = f32::from(layers) + 1.0;
    let device_of = |layer: u16| {
        let place = f32::from(layer) / all;
        (1..=gpus).position(|upper| f32::from(upper) / f32::from(gpus) > place).unwrap_or(0)
    };
    let mut spans = vec![LayerSpan { first: 0, count: 0, output: false }; usize::from(gpus)];
    for layer in 0..layers {
        let span = &mut spans[device_of(layer)];
        span.first = if span.count == 0 { usize::from(layer) } else { span.first };
        span.count += 1;
    }
    spans[device_of(layers)].output = true;
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(layers: u16, gpus: u16) -> Vec<usize> {
        by_layer(layers, gpus).iter().map(|span| span.count).collect()
    }

    #[test]
    fn the_first_gpu_has_the_odd_layer_and_the_last_the_output() {
        assert_eq!(counts(80, 1), [80]);
        assert_eq!(counts(80, 2), [41, 39]);
        assert_eq!(counts(80, 4), [21, 20, 20, 19]);
        assert_eq!(counts(28, 8), [4, 4, 3, 4, 4, 3, 4, 2]);
        assert!(by_layer(80, 8).iter().enumerate().all(|(gpu, span)| span.output == (gpu == 7)));
    }

    #[test]
    fn every_layer_is_on_one_gpu_and_in_order() {
        for layers in 0..200 {
            for gpus in 1..=16 {
                let spans = by_layer(layers, gpus);
                let ranges: Vec<usize> = spans.iter().flat_map(|span| span.range()).collect();
                assert_eq!(ranges, (0..usize::from(layers)).collect::<Vec<_>>(), "{layers} layers, {gpus} GPUs");
                assert_eq!(spans.iter().filter(|span| span.output).count(), 1);
            }
        }
    }
}
