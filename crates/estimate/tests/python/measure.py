"""What a real llama.cpp prints of its buffers, for tiny models of several shapes.

    python measure.py FOLDER

writes FOLDER/measured.json and a header for each model. Needs the packages gguf, numpy and xllamacpp.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from tiny_models import MODELS

# model, context of one sequence, sequences, flash attention, type of the cache, one cache for all
CASES = [(name, 4096, 1, flash, "f16", False) for name in MODELS for flash in (False, True)] + [
    ("llama", 1000, 1, True, "f16", False),
    ("llama", 1000, 3, True, "f16", False),
    ("llama", 1024, 4, True, "f16", False),
    ("llama", 1024, 4, False, "f16", False),
    ("llama", 1024, 4, True, "f16", True),
    ("llama", 4096, 1, True, "q8_0", False),
    ("llama", 4096, 1, True, "q4_0", False),
    ("llama", 4096, 1, True, "bf16", False),
    ("gemma3-windows", 2048, 4, True, "f16", False),
    ("gemma3-windows", 2048, 4, True, "f16", True),
    ("mamba-states", 1024, 4, True, "f16", False),
    ("lfm2-hybrid", 1024, 4, True, "f16", False),
]

# Runs in a process of its own, which may hang as it ends.
PROGRAM = """
import sys, time
import xllamacpp
path, tokens, sequences, flash, cache, unified = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = path
params.n_ctx, params.n_parallel, params.kv_unified = int(tokens), int(sequences), unified == "True"
params.flash_attn_type = getattr(
    xllamacpp.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + ("ENABLED" if flash == "True" else "DISABLED"))
kind = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + cache.upper())
params.cache_type_k, params.cache_type_v = kind, kind
params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
params.verbosity, params.warmup, params.fit_params, params.port = 5, False, False, 0
server = xllamacpp.Server(params)
time.sleep(0.2)
"""


def mebibytes(pattern, text):
    return round(sum(float(number) for number in re.findall(pattern + r"\s+([\d.]+) MiB", text)), 4)


def run(path, case):
    name, context, sequences, flash, cache, unified = case
    args = [str(path), str(context * sequences), str(sequences), str(flash), cache, str(unified)]
    for _ in range(5):
        try:
            done = subprocess.run([sys.executable, "-c", PROGRAM, *args], capture_output=True, text=True, timeout=15)
        except subprocess.TimeoutExpired:
            continue
        text = done.stdout + done.stderr
        if "compute buffer size is" in text:
            return {
                "model": name, "context": context, "parallel": sequences, "flash_attention": flash, "cache": cache,
                "unified": unified,
                "weights_mib": mebibytes(r"load_tensors:\s+\S+ model buffer size =", text),
                "kv_mib": mebibytes(r"KV buffer size =", text),
                "states_mib": mebibytes(r"RS buffer size =", text),
                "compute_mib": mebibytes(r"compute buffer size is", text),
            }
    raise SystemExit(f"{case}: llama.cpp did not say its sizes\n{text[-2000:]}")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    lengths = {name: model.write_header(folder / f"{name}.gguf") for name, model in MODELS.items()}
    with tempfile.TemporaryDirectory() as scratch:
        for name, model in MODELS.items():
            model.write(pathlib.Path(scratch) / f"{name}.gguf")
        cases = [run(pathlib.Path(scratch) / f"{case[0]}.gguf", case) for case in CASES]
    lines = ",\n    ".join(json.dumps(case) for case in cases)
    text = f'{{\n  "lengths": {json.dumps(lengths)},\n  "cases": [\n    {lines}\n  ]\n}}\n'
    (folder / "measured.json").write_text(text)


main()
