//! How the layers of a GGUF model are built, where its metadata does not say.

use crate::shape::{Build, Layer};

use super::parts::GgufModel;

impl GgufModel {
    /// Finds out how each layer is built by its tensors. A layer without tensors counts as the usual one.
    pub(super) fn builds(&self, layers: &mut [Layer]) {
        for (index, layer) in layers.iter_mut().enumerate() {
            let tensor = |name: &str| self.tensor(&format!("blk.{index}.{name}.weight"));
            let rows = |name: &str| tensor(name).map(|tensor| tensor.dimensions()[1]);
            let both_in_one = |up: u64| layer.feed_forward > 0 && up >= 2 * layer.feed_forward;
            layer.build = Build {
                ungated: rows("ffn_up").is_some_and(|up| tensor("ffn_gate").is_none() && !both_in_one(up)),
                fused_queries: tensor("attn_qkv").is_some(),
                biased_experts: self.tensor(&format!("blk.{index}.ffn_up_exps.bias")).is_some(),
                parallel: tensor("attn_norm").is_some()
                    && ["ffn_norm", "post_attention_norm", "attn_output_norm"]
                        .iter()
                        .all(|name| tensor(name).is_none()),
            };
            let (one, shared) = (rows("ffn_up_exps"), rows("ffn_up_shexp"));
            // A file states the widths of both kinds of layers; a layer has the tensors of one.
            let only_experts = one.is_some() && rows("ffn_up").is_none();
            if only_experts && layer.experts.is_some() {
                layer.feed_forward = 0;
            }
            if one.is_none() && rows("ffn_up").is_some() {
                layer.experts = None;
            }
            if let Some(experts) = &mut layer.experts {
                experts.feed_forward = one.unwrap_or(experts.feed_forward);
                experts.shared = shared.unwrap_or(0);
            }
        }
    }
}
