"""Tiny models with random weights, one for each shape that decides about memory.

Each is written twice: whole, for a real llama.cpp to load, and as a header without data, for the tests to read.
Needs the packages gguf and numpy.
"""

import gguf
import numpy as np

F32, F16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16


class Model:
    """A model that is being described: metadata first, then tensors in ggml's order of dimensions."""

    def __init__(self, arch, layers, embd, ff=None, heads=None, kv=None, ctx=4096, vocab=320):
        self.arch, self.vocab, self.keys, self.tensors = arch, vocab, [], []
        self.add("add_context_length", ctx)
        self.add("add_embedding_length", embd)
        self.add("add_block_count", layers)
        for method, value in (("add_feed_forward_length", ff), ("add_head_count", heads), ("add_head_count_kv", kv)):
            if value is not None:
                self.add(method, value)
        self.add("add_layer_norm_rms_eps", 1e-5)
        self.add("add_vocab_size", vocab)

    def add(self, method, value):
        self.keys.append((method, value))

    def key(self, name, value):
        """A key of the architecture: whole numbers, fractions, switches, texts and lists of them."""
        self.keys.append((None, (f"{self.arch}.{name}", value)))

    def norm(self, name, size):
        self.tensors.append((name, (size,), F32))

    def f32(self, name, *shape):
        self.tensors.append((name, shape, F32))

    def matrix(self, name, *shape, kind=F16):
        self.tensors.append((name, shape, kind))

    def ends(self, embd, tied=False, norm="output_norm"):
        self.matrix("token_embd.weight", embd, self.vocab)
        self.norm(f"{norm}.weight", embd)
        if not tied:
            self.matrix("output.weight", embd, self.vocab)

    def attention(self, layer, embd, q, k, v):
        self.norm(f"blk.{layer}.attn_norm.weight", embd)
        self.matrix(f"blk.{layer}.attn_q.weight", embd, q)
        self.matrix(f"blk.{layer}.attn_k.weight", embd, k)
        self.matrix(f"blk.{layer}.attn_v.weight", embd, v)
        self.matrix(f"blk.{layer}.attn_output.weight", q, embd)

    def feed_forward(self, layer, embd, ff):
        self.norm(f"blk.{layer}.ffn_norm.weight", embd)
        self.matrix(f"blk.{layer}.ffn_gate.weight", embd, ff)
        self.matrix(f"blk.{layer}.ffn_up.weight", embd, ff)
        self.matrix(f"blk.{layer}.ffn_down.weight", ff, embd)

    def start(self, path):
        writer = gguf.GGUFWriter(str(path), self.arch)
        for method, value in self.keys:
            if method:
                getattr(writer, method)(value)
            else:
                add_key(writer, *value)
        return writer

    def write(self, path):
        """The whole file, with a vocabulary."""
        writer, rng = self.start(path), np.random.default_rng(7)
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
        tokens += [f"t{i}" for i in range(self.vocab - len(tokens))]
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * self.vocab)
        writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (self.vocab - 259))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
        for name, shape, kind in self.tensors:
            data = (rng.standard_normal(shape[::-1]) * 0.02).astype(np.float32 if kind == F32 else np.float16)
            writer.add_tensor(name, data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def write_header(self, path):
        """The header without vocabulary and data. Returns how long the file would be with its data."""
        writer, length = self.start(path), 0
        for name, shape, kind in self.tensors:
            dtype = np.dtype(np.float32 if kind == F32 else np.float16)
            size = int(np.prod(shape)) * dtype.itemsize
            writer.add_tensor_info(name, list(shape[::-1]), dtype, size)
            length += (size + 31) // 32 * 32
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        return (path.stat().st_size + 31) // 32 * 32 + length


def add_key(writer, name, value):
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
             list: writer.add_array}
    kinds[type(value)](name, value)


def llama(layers=4, embd=256, ff=512, heads=8, kv=2, tied=False, vocab=320):
    model, head = Model("llama", layers, embd, ff, heads, kv, vocab=vocab), embd // heads
    model.add("add_rope_dimension_count", head)
    model.ends(embd, tied)
    for i in range(layers):
        model.attention(i, embd, embd, kv * head, kv * head)
        model.feed_forward(i, embd, ff)
    return model


def qwen3(layers=3, embd=192, ff=512, heads=4, kv=2, head=128):
    """Heads that are longer than the embedding divided among them."""
    model = Model("qwen3", layers, embd, ff, heads, kv)
    model.add("add_key_length", head)
    model.add("add_value_length", head)
    model.ends(embd, tied=True)
    for i in range(layers):
        model.attention(i, embd, heads * head, kv * head, kv * head)
        model.norm(f"blk.{i}.attn_q_norm.weight", head)
        model.norm(f"blk.{i}.attn_k_norm.weight", head)
        model.feed_forward(i, embd, ff)
    return model


def gemma3(layers=8, embd=128, ff=256, heads=4, kv=2, head=64, window=512):
    """Windows in all layers but every sixth."""
    model = Model("gemma3", layers, embd, ff, heads, kv, ctx=8192)
    model.add("add_key_length", head)
    model.add("add_value_length", head)
    model.add("add_sliding_window", window)
    model.ends(embd, tied=True)
    for i in range(layers):
        model.attention(i, embd, heads * head, kv * head, kv * head)
        for name, size in (("attn_q_norm", head), ("attn_k_norm", head), ("post_attention_norm", embd), ("post_ffw_norm", embd)):
            model.norm(f"blk.{i}.{name}.weight", size)
        model.feed_forward(i, embd, ff)
    return model


def deci(embd=256, head=32):
    """Heads and feed-forward parts that differ by layer, and a layer without attention."""
    heads, kv, ff = [8, 8, 0, 8], [2, 4, 0, 1], [512, 384, 512, 256]
    model = Model("deci", 4, embd, ff, heads, kv)
    model.add("add_rope_dimension_count", head)
    model.add("add_key_length", head)
    model.add("add_value_length", head)
    model.ends(embd)
    for i in range(4):
        if heads[i]:
            model.attention(i, embd, heads[i] * head, kv[i] * head, kv[i] * head)
        model.feed_forward(i, embd, ff[i])
    return model


def deepseek2(layers=3, embd=256, ff=512, heads=4, lora=64, rope=32, nope=64, value=64, q_lora=48):
    """One latent row for each token instead of keys and values."""
    model = Model("deepseek2", layers, embd, ff, heads, 1)
    for method, number in (
        ("add_key_length", lora + rope), ("add_value_length", lora), ("add_key_length_mla", nope + rope),
        ("add_value_length_mla", value), ("add_kv_lora_rank", lora), ("add_q_lora_rank", q_lora),
        ("add_rope_dimension_count", rope), ("add_leading_dense_block_count", layers),
        ("add_expert_feed_forward_length", ff), ("add_expert_shared_count", 0), ("add_expert_count", 0),
        ("add_expert_used_count", 0),
    ):
        model.add(method, number)
    model.ends(embd)
    for i in range(layers):
        model.norm(f"blk.{i}.attn_norm.weight", embd)
        model.matrix(f"blk.{i}.attn_q_a.weight", embd, q_lora)
        model.norm(f"blk.{i}.attn_q_a_norm.weight", q_lora)
        model.matrix(f"blk.{i}.attn_q_b.weight", q_lora, heads * (nope + rope))
        model.matrix(f"blk.{i}.attn_kv_a_mqa.weight", embd, lora + rope)
        model.norm(f"blk.{i}.attn_kv_a_norm.weight", lora)
        model.matrix(f"blk.{i}.attn_k_b.weight", nope, lora, heads)
        model.matrix(f"blk.{i}.attn_v_b.weight", lora, value, heads)
        model.matrix(f"blk.{i}.attn_output.weight", heads * value, embd)
        model.feed_forward(i, embd, ff)
    return model


def mamba(layers=4, embd=128, inner=256, state=16, conv=4, rank=8):
    """Only states."""
    model = Model("mamba", layers, embd, 0, 0)
    for method, number in (
        ("add_ssm_conv_kernel", conv), ("add_ssm_inner_size", inner), ("add_ssm_state_size", state),
        ("add_ssm_time_step_rank", rank),
    ):
        model.add(method, number)
    model.ends(embd, tied=True)
    for i in range(layers):
        model.norm(f"blk.{i}.attn_norm.weight", embd)
        model.matrix(f"blk.{i}.ssm_in.weight", embd, 2 * inner)
        model.f32(f"blk.{i}.ssm_conv1d.weight", conv, inner)
        model.f32(f"blk.{i}.ssm_conv1d.bias", inner)
        model.matrix(f"blk.{i}.ssm_x.weight", inner, rank + 2 * state)
        model.matrix(f"blk.{i}.ssm_dt.weight", rank, inner)
        model.f32(f"blk.{i}.ssm_dt.bias", inner)
        model.f32(f"blk.{i}.ssm_a", state, inner)
        model.f32(f"blk.{i}.ssm_d", inner)
        model.matrix(f"blk.{i}.ssm_out.weight", inner, embd)
    return model


def lfm2(embd=256, ff=512, cache=3):
    """Convolutions with a state, and attention between them."""
    kv = [0, 2, 0, 2]
    model = Model("lfm2", 4, embd, ff, 8, kv)
    model.add("add_shortconv_l_cache", cache)
    model.ends(embd, tied=True, norm="token_embd_norm")
    for i in range(4):
        if kv[i]:
            model.attention(i, embd, embd, kv[i] * 32, kv[i] * 32)
            model.norm(f"blk.{i}.attn_q_norm.weight", 32)
            model.norm(f"blk.{i}.attn_k_norm.weight", 32)
        else:
            model.norm(f"blk.{i}.attn_norm.weight", embd)
            model.matrix(f"blk.{i}.shortconv.in_proj.weight", embd, 3 * embd)
            model.matrix(f"blk.{i}.shortconv.out_proj.weight", embd, embd)
            model.f32(f"blk.{i}.shortconv.conv.weight", cache, embd)
        model.feed_forward(i, embd, ff)
    return model


def experts(layers=4, embd=256, ff=128, heads=8, kv=2, count=8, used=4):
    model = Model("llama", layers, embd, ff, heads, kv)
    model.add("add_rope_dimension_count", embd // heads)
    model.add("add_expert_count", count)
    model.add("add_expert_used_count", used)
    model.ends(embd)
    for i in range(layers):
        model.attention(i, embd, embd, kv * embd // heads, kv * embd // heads)
        model.norm(f"blk.{i}.ffn_norm.weight", embd)
        model.f32(f"blk.{i}.ffn_gate_inp.weight", embd, count)
        model.matrix(f"blk.{i}.ffn_gate_exps.weight", embd, ff, count)
        model.matrix(f"blk.{i}.ffn_up_exps.weight", embd, ff, count)
        model.matrix(f"blk.{i}.ffn_down_exps.weight", ff, embd, count)
    return model


MODELS = {
    "llama": llama(),
    "llama-tied": llama(tied=True),
    "llama-all-heads": llama(kv=8),
    "llama-wide": llama(layers=3, embd=1024, ff=2816, heads=16, kv=4),
    "llama-vocabulary": llama(layers=3, vocab=32000),
    "qwen3-long-heads": qwen3(),
    "gemma3-windows": gemma3(),
    "deci-by-layer": deci(),
    "deepseek2-latent": deepseek2(),
    "mamba-states": mamba(),
    "lfm2-hybrid": lfm2(),
    "experts": experts(),
    "experts-thin": experts(embd=512, ff=192, heads=16, count=16, used=8),
}
