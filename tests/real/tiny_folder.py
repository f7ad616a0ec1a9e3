"""Writes a llama model with random weights as vLLM reads it, a folder of 1 MB: python tiny_folder.py FOLDER

Needs the packages numpy, safetensors and tokenizers.
"""

import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

LAYERS, HIDDEN, HEADS, FEED_FORWARD, CONTEXT = 2, 128, 4, 256, 2048

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

# Every byte is a token, so that any text can be read.
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
words = {word: number for number, word in enumerate(["<s>", "</s>", *letters])}
tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<s>", "</s>"])
tokenizer.save(str(folder / "tokenizer.json"))

vocabulary = 320  # a multiple of 64, as engines pad it
config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "float32",
    "vocab_size": vocabulary,
    "hidden_size": HIDDEN,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
(folder / "config.json").write_text(json.dumps(config))
about_tokens = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "model_max_length": CONTEXT,
    "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
}
(folder / "tokenizer_config.json").write_text(json.dumps(about_tokens))

random = np.random.default_rng(1)


def weights(*shape):
    return (random.standard_normal(shape) * 0.02).astype(np.float32)


tensors = {
    "model.embed_tokens.weight": weights(vocabulary, HIDDEN),
    "model.norm.weight": np.ones(HIDDEN, np.float32),
    "lm_head.weight": weights(vocabulary, HIDDEN),
}
for layer in range(LAYERS):
    here = f"model.layers.{layer}."
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{here}{name}.weight"] = np.ones(HIDDEN, np.float32)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        tensors[f"{here}self_attn.{name}.weight"] = weights(HIDDEN, HIDDEN)
    for name in ("gate_proj", "up_proj"):
        tensors[f"{here}mlp.{name}.weight"] = weights(FEED_FORWARD, HIDDEN)
    tensors[f"{here}mlp.down_proj.weight"] = weights(HIDDEN, FEED_FORWARD)
save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
