"""Tiny models with random weights of many architectures, each in any size.

ARCHITECTURES has a function for each: it takes a Size and returns a Model. What an architecture cannot have (heads that
are not the embedding divided among them, for example) the function takes from the Size that it can.
"""

from dataclasses import replace

from tiny_builder import (
    EXPERTS, LLAMA, MAMBA1, MAMBA2, SHARED, Size, add_tensors, experts, states, states_of_mamba1, tiny, wide_experts)

__all__ = ["ARCHITECTURES", "Size"]

ATTENTION = "attn_norm attn_q attn_k attn_v attn_output"
BIASED_ATTENTION = "attn_norm attn_q+ attn_k+ attn_v+ attn_output"
GATED = "ffn_norm ffn_gate ffn_up ffn_down"
POST_NORMS = "post_attention_norm post_ffw_norm"
HEAD_NORMS = "attn_q_norm attn_k_norm"
ROW_NORMS = "attn_q_norm_row attn_k_norm_row"
UNGATED = f"{ATTENTION} ffn_norm ffn_up ffn_down"
ALL_BIASED = "attn_norm+ attn_q+ attn_k+ attn_v+ attn_output+ ffn_norm+ ffn_up+ ffn_down+"
FUSED = "attn_norm+ attn_qkv+ attn_output+ ffn_norm+ ffn_up+ ffn_down+"
ROTATED = {"rope.dimension_count": 16}
SCALES = {"attention.scale": 0.1, "embedding_scale": 2.0, "residual_scale": 0.5, "logit_scale": 2.0}


def same(size):
    return size


def even(size):
    """Heads that are the embedding divided among them."""
    return replace(size, head=size.embd // size.heads)


def all_heads(size):
    """The same, with as many heads for keys as for queries."""
    return replace(even(size), kv=size.heads)


def wide(size):
    """Experts as wide as the feed-forward part."""
    return replace(size, expert_ff=size.ff)


def shared_alike(size):
    """A shared expert that is as wide as the others."""
    return replace(size, shared_ff=size.expert_ff)


def twice_inner(size):
    """States that are twice as wide as the embedding, with heads that divide them."""
    return replace(size, inner=2 * size.embd, state_heads=8, groups=1)


def window(size):
    return {"attention.sliding_window": size.window}


def of(arch, words, keys=None, size=same, **more):
    """An architecture whose layers all have the same tensors."""
    def build(wanted):
        chosen = size(wanted)
        return tiny(arch, chosen, words, keys=keys(chosen) if callable(keys) else keys, **more)
    return build


def positions(model, size):
    model.matrix("position_embd.weight", size.embd, 4096)


def output_bias(model, size):
    model.f32("output.bias", size.vocab)


def embedding_norm(model, size):
    model.f32("token_embd_norm.weight", size.embd)
    model.f32("token_embd_norm.bias", size.embd)


def xielu(model, size):
    """The constants of an activation, which have no architecture in their names."""
    for name in ("alpha_n", "alpha_p", "beta", "eps"):
        model.keys.append((None, (f"xielu.{name}", [1.0] * size.layers)))


def hybrid(arch, recurrent, keys):
    """Every second layer keeps a state, the others have attention."""
    def build(size):
        size = even(twice_inner(size))
        words = [(recurrent, ATTENTION)[layer % 2] + " " + GATED for layer in range(4)]
        return tiny(arch, size, words, keys=keys(size), kv=[(0, size.kv)[layer % 2] for layer in range(4)])
    return build


def nemotron_h(size):
    """Layers with a state, with attention, or with a feed-forward part: one of the three."""
    words = ["attn_norm " + MAMBA2, ATTENTION, "attn_norm ffn_up ffn_down"]
    return tiny("nemotron_h", size, words, keys=states(size), kv=[0, size.kv, 0], ff=[0, 0, size.ff])


def recurrent(arch, words, keys, size=twice_inner):
    return lambda wanted: tiny(arch, size(wanted), words, keys=keys(size(wanted)), heads=0, kv=0, ff=0)


def deepseek2(feed_forward, dense):
    """One latent row for keys and values."""
    def build(size):
        size = shared_alike(size)
        keys = {
            "attention.key_length": size.lora + size.rope, "attention.value_length": size.lora,
            "attention.key_length_mla": size.head + size.rope, "attention.value_length_mla": size.head,
            "attention.kv_lora_rank": size.lora, "attention.q_lora_rank": size.rank, "rope.dimension_count": size.rope,
            "leading_dense_block_count": size.layers if dense else 0, "expert_shared_count": 1, **experts(size),
        }
        words = ("attn_norm attn_q_a attn_q_a_norm attn_q_b attn_kv_a_mqa attn_kv_a_norm attn_k_b attn_v_b attn_output "
                 "ffn_norm ")
        model = tiny("deepseek2", even(size), "", kv=1, keys=keys)
        for layer in range(size.layers):
            add_tensors(model, size, f"blk.{layer}.", words + feed_forward)
        return model
    return build


ARCHITECTURES = {
    "llama": of("llama", LLAMA),
    "qwen2": of("qwen2", f"{BIASED_ATTENTION} {GATED}", size=even),
    "qwen3": of("qwen3", f"{LLAMA} {HEAD_NORMS}"),
    "granite": of("granite", LLAMA, SCALES),
    "glm4": of("glm4", f"{ATTENTION} ffn_norm ffn_up_both ffn_down {POST_NORMS}", ROTATED),
    "phi3": of("phi3", "attn_norm attn_qkv attn_output ffn_norm ffn_up_both ffn_down", ROTATED, size=even),
    "gemma": of("gemma", LLAMA, ends=""),
    "gemma2": of("gemma2", f"{LLAMA} {POST_NORMS}", window, ends=""),
    "gemma3": of("gemma3", f"{LLAMA} {HEAD_NORMS} {POST_NORMS}", window, ends=""),
    "olmo2": of(
        "olmo2", f"attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down {ROW_NORMS} {POST_NORMS}", size=even),
    "stablelm": of(
        "stablelm", "attn_norm+ attn_q attn_k attn_v attn_output ffn_norm+ ffn_gate ffn_up ffn_down", ROTATED,
        size=even, bias_at_end=True),
    "starcoder2": of("starcoder2", ALL_BIASED, size=even, bias_at_end=True),
    "falcon": of("falcon", "attn_norm+ attn_qkv attn_output ffn_up ffn_down", size=even, bias_at_end=True),
    "gptneox": of("gptneox", FUSED, {**ROTATED, "use_parallel_residual": True}, size=all_heads, bias_at_end=True),
    "gpt2": of("gpt2", FUSED, size=all_heads, bias_at_end=True, first=positions),
    "bloom": of("bloom", FUSED, size=all_heads, bias_at_end=True, first=embedding_norm),
    "mpt": of(
        "mpt", FUSED.replace("+", ""), {"attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 0.0}, size=all_heads),
    "nemotron": of(
        "nemotron", "attn_norm+ attn_q attn_k attn_v attn_output ffn_norm+ ffn_up ffn_down", ROTATED, size=even,
        bias_at_end=True),
    "phi2": of(
        "phi2", ALL_BIASED.replace("ffn_norm+ ", ""), ROTATED, size=all_heads, bias_at_end=True, first=output_bias),
    "command-r": of("command-r", LLAMA.replace("ffn_norm ", ""), {"logit_scale": 0.1}, size=even, ends=""),
    "cohere2": of(
        "cohere2", LLAMA.replace("ffn_norm ", ""), lambda size: {"logit_scale": 0.1, **window(size)}, size=even,
        ends=""),
    "exaone": of("exaone", LLAMA),
    "exaone4": of(
        "exaone4", f"attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down {HEAD_NORMS} {POST_NORMS}", size=even),
    "internlm2": of("internlm2", LLAMA, size=even),
    "minicpm": of("minicpm", LLAMA),
    "smollm3": of("smollm3", LLAMA),
    "arcee": of("arcee", UNGATED),
    "apertus": of("apertus", f"{UNGATED} {HEAD_NORMS}", first=xielu),
    "seed_oss": of("seed_oss", LLAMA.replace("ffn_norm", "post_attention_norm")),
    "mixtral": of("llama", f"{ATTENTION} ffn_norm {EXPERTS}", wide_experts, size=wide),
    "qwen2moe": of(
        "qwen2moe", f"{BIASED_ATTENTION} ffn_norm ffn_gate_inp_shexp {EXPERTS} {SHARED}",
        lambda size: experts(size, expert_shared_feed_forward_length=size.shared_ff), size=even),
    "qwen3moe": of("qwen3moe", f"{ATTENTION} {HEAD_NORMS} ffn_norm {EXPERTS}", experts),
    "olmoe": of(
        "olmoe", f"{ATTENTION} {ROW_NORMS} ffn_norm {EXPERTS}", wide_experts, size=lambda size: wide(all_heads(size))),
    "granitemoe": of(
        "granitemoe", f"{ATTENTION} ffn_norm {EXPERTS}", lambda size: wide_experts(size, **SCALES), size=wide),
    "gpt-oss": of(
        "gpt-oss",
        "attn_norm attn_q+ attn_k+ attn_v+ attn_output+ post_attention_norm attn_sinks "
        "ffn_gate_inp+ ffn_gate_exps+ ffn_up_exps+ ffn_down_exps+",
        lambda size: experts(size, **window(size))),
    "dbrx": of(
        "dbrx", f"attn_norm attn_qkv attn_output attn_output_norm {EXPERTS}",
        lambda size: wide_experts(size, **{"attention.clamp_kqv": 8.0}), size=lambda size: wide(even(size))),
    "glm4moe": of(
        "glm4moe", f"{BIASED_ATTENTION} post_attention_norm exp_probs_b. {EXPERTS} {SHARED}",
        lambda size: experts(
            size, expert_shared_count=1, leading_dense_block_count=0, nextn_predict_layers=0, **ROTATED),
        size=shared_alike),
    "llama4": of(
        "llama4", f"{ATTENTION} ffn_norm {EXPERTS} {SHARED}", lambda size: experts(size, interleave_moe_layer_step=1),
        size=shared_alike),
    "deepseek2-dense": deepseek2("ffn_gate ffn_up ffn_down", True),
    "deepseek2-experts": deepseek2(f"{EXPERTS} {SHARED}", False),
    "mamba": recurrent("mamba", "attn_norm " + MAMBA1, states_of_mamba1),
    "mamba2": recurrent("mamba2", "attn_norm " + MAMBA2, states, size=same),
    "falcon-h1": lambda size: tiny(
        "falcon-h1", size, f"{ATTENTION} =ffn_norm ffn_gate ffn_up ffn_down {MAMBA2}", keys=states(size)),
    "jamba": hybrid("jamba", f"attn_norm {MAMBA1} ssm_dt_norm ssm_b_norm ssm_c_norm", states_of_mamba1),
    "granitehybrid": hybrid("granitehybrid", "attn_norm " + MAMBA2, states),
    "nemotron_h": nemotron_h,
}
