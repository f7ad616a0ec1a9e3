"""Builds tiny models of any architecture in any size from a list of its tensors.

An architecture is the list of its tensors in words. `attn_q` is the tensor `blk.N.attn_q.weight`, `attn_q+` the same
and its bias, `=attn_sinks` a tensor whose name is complete without `.weight`; TENSORS says how large each of them is.
Needs the packages gguf and numpy.
"""

from dataclasses import dataclass, replace

from tiny_models import F32, Model


@dataclass(frozen=True)
class Size:
    """How large a tiny model is."""

    layers: int = 2
    embd: int = 256
    ff: int = 768
    heads: int = 8
    kv: int = 2
    head: int = 32
    vocab: int = 320
    experts: int = 8
    used: int = 2
    expert_ff: int = 192
    shared_ff: int = 256
    inner: int = 512
    state: int = 16
    groups: int = 1
    state_heads: int = 8
    conv: int = 4
    rank: int = 16
    lora: int = 64
    rope: int = 16
    window: int = 512

    @property
    def q(self):
        return self.heads * self.head

    @property
    def k(self):
        return self.kv * self.head

    @property
    def convolved(self):
        return self.inner + 2 * self.groups * self.state


# The dimensions of a tensor, in ggml's order.
TENSORS = {
    "attn_norm": lambda s: (s.embd,), "attn_norm_2": lambda s: (s.embd,), "ffn_norm": lambda s: (s.embd,),
    "post_attention_norm": lambda s: (s.embd,), "post_ffw_norm": lambda s: (s.embd,),
    "attn_output_norm": lambda s: (s.embd,), "layer_output_norm": lambda s: (s.embd,),
    "attn_q": lambda s: (s.embd, s.q), "attn_k": lambda s: (s.embd, s.k), "attn_v": lambda s: (s.embd, s.k),
    "attn_qkv": lambda s: (s.embd, s.q + 2 * s.k), "attn_output": lambda s: (s.q, s.embd),
    "attn_q_gated": lambda s: (s.embd, 2 * s.q), "attn_gate": lambda s: (s.embd, s.inner),
    "attn_q_norm": lambda s: (s.head,), "attn_k_norm": lambda s: (s.head,), "attn_sinks": lambda s: (s.heads,),
    "attn_q_norm_row": lambda s: (s.q,), "attn_k_norm_row": lambda s: (s.k,),
    "attn_q_norm_heads": lambda s: (s.head, s.heads), "attn_k_norm_heads": lambda s: (s.head, s.kv),
    "attn_q_a": lambda s: (s.embd, s.rank), "attn_q_a_norm": lambda s: (s.rank,),
    "attn_q_b": lambda s: (s.rank, s.heads * (s.head + s.rope)),
    "attn_kv_a_mqa": lambda s: (s.embd, s.lora + s.rope), "attn_kv_a_norm": lambda s: (s.lora,),
    "attn_kv_b": lambda s: (s.lora, s.heads * 2 * s.head),
    "attn_k_b": lambda s: (s.head, s.lora, s.heads), "attn_v_b": lambda s: (s.lora, s.head, s.heads),
    "ffn_gate": lambda s: (s.embd, s.ff), "ffn_up": lambda s: (s.embd, s.ff), "ffn_down": lambda s: (s.ff, s.embd),
    "ffn_up_both": lambda s: (s.embd, 2 * s.ff),
    "ffn_gate_inp": lambda s: (s.embd, s.experts), "exp_probs_b": lambda s: (s.experts,),
    "ffn_gate_exps": lambda s: (s.embd, s.expert_ff, s.experts),
    "ffn_up_exps": lambda s: (s.embd, s.expert_ff, s.experts),
    "ffn_down_exps": lambda s: (s.expert_ff, s.embd, s.experts),
    "ffn_gate_inp_shexp": lambda s: (s.embd,), "ffn_gate_shexp": lambda s: (s.embd, s.shared_ff),
    "ffn_up_shexp": lambda s: (s.embd, s.shared_ff), "ffn_down_shexp": lambda s: (s.shared_ff, s.embd),
    "ssm_conv1d": lambda s: (s.conv, s.convolved), "ssm_out": lambda s: (s.inner, s.embd),
    "ssm_in": lambda s: (s.embd, s.inner + s.convolved + s.state_heads),
    "ssm_dt": lambda s: (s.state_heads,), "ssm_a": lambda s: (1, s.state_heads), "ssm_d": lambda s: (1, s.state_heads),
    "ssm_norm": lambda s: (s.inner // s.groups, s.groups),
    "ssm_in_1": lambda s: (s.embd, 2 * s.inner), "ssm_conv1d_1": lambda s: (s.conv, s.inner),
    "ssm_x": lambda s: (s.inner, s.rank + 2 * s.state), "ssm_dt_1": lambda s: (s.rank, s.inner),
    "ssm_a_1": lambda s: (s.state, s.inner), "ssm_d_1": lambda s: (s.inner,),
    "ssm_dt_norm": lambda s: (s.rank,), "ssm_b_norm": lambda s: (s.state,), "ssm_c_norm": lambda s: (s.state,),
}
# Two architectures may give one name to tensors of different sizes.
NAMES = {
    "attn_q_gated": "attn_q", "ffn_up_both": "ffn_up", "attn_q_norm_row": "attn_q_norm",
    "attn_k_norm_row": "attn_k_norm", "attn_q_norm_heads": "attn_q_norm", "attn_k_norm_heads": "attn_k_norm",
    "ssm_in_1": "ssm_in", "ssm_conv1d_1": "ssm_conv1d", "ssm_dt_1": "ssm_dt", "ssm_a_1": "ssm_a", "ssm_d_1": "ssm_d",
}
SINGLE_PRECISION = ("norm", "ssm_conv1d", "ssm_a", "ssm_d", "ffn_gate_inp", "attn_sinks", "exp_probs_b")

LLAMA = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"
EXPERTS = "ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps"
SHARED = "ffn_gate_shexp ffn_up_shexp ffn_down_shexp"
MAMBA1 = "ssm_in_1 ssm_conv1d_1+ ssm_x ssm_dt_1+ =ssm_a_1 =ssm_d_1 ssm_out"
MAMBA2 = "ssm_in ssm_conv1d+ ssm_dt. =ssm_a =ssm_d ssm_norm ssm_out"


def add_tensors(model, size, prefix, words):
    """Adds the tensors of one layer, or with an empty prefix those of none."""
    for word in words.split():
        kind = word.strip("+=.")
        name, shape = prefix + NAMES.get(kind, kind), TENSORS[kind](size)
        single = len(shape) == 1 or any(part in kind for part in SINGLE_PRECISION)
        if word.startswith("="):
            model.f32(name, *shape)
            continue
        if not word.endswith("."):
            (model.f32 if single else model.matrix)(name + ".weight", *shape)
        if word.endswith(("+", ".")):
            model.f32(name + ".bias", *(shape if len(shape) == 1 else shape[1:]))


def tiny(arch, size, words, ends="output", keys=None, heads=None, kv=None, ff=None, first=None, bias_at_end=False):
    """A model whose layers have these tensors: one list for all layers, or a list of lists."""
    by_layer = [words] * size.layers if isinstance(words, str) else words
    size = replace(size, layers=len(by_layer))
    model = Model(
        arch, size.layers, size.embd, size.ff if ff is None else ff, size.heads if heads is None else heads,
        size.kv if kv is None else kv, vocab=size.vocab)
    model.add("add_layer_norm_eps", 1e-5)
    if size.heads and size.embd // size.heads != size.head:
        model.add("add_key_length", size.head)
        model.add("add_value_length", size.head)
    for key, value in (keys or {}).items():
        model.key(key, value)
    model.matrix("token_embd.weight", size.embd, size.vocab)
    model.f32("output_norm.weight", size.embd)
    if bias_at_end:
        model.f32("output_norm.bias", size.embd)
    if ends == "output":
        model.matrix("output.weight", size.embd, size.vocab)
    if first:
        first(model, size)
    for layer, layer_words in enumerate(by_layer):
        add_tensors(model, size, f"blk.{layer}.", layer_words)
    return model


def experts(size, **more):
    return {"expert_count": size.experts, "expert_used_count": size.used,
            "expert_feed_forward_length": size.expert_ff, **more}


def wide_experts(size, **more):
    """Experts as wide as the feed-forward part, of which the file does not speak again."""
    return {"expert_count": size.experts, "expert_used_count": size.used, **more}


def states(size):
    return {"ssm.conv_kernel": size.conv, "ssm.inner_size": size.inner, "ssm.state_size": size.state,
            "ssm.time_step_rank": size.state_heads, "ssm.group_count": size.groups}


def states_of_mamba1(size):
    return {"ssm.conv_kernel": size.conv, "ssm.inner_size": size.inner, "ssm.state_size": size.state,
            "ssm.time_step_rank": size.rank}
