"""What a real llama.cpp prints of its buffers, for tiny models of many shapes and architectures.

    python measure.py FOLDER                        the cases of docs/ESTIMATION.md
    python measure.py FOLDER --random COUNT SEED    COUNT sizes and settings of each architecture, by chance

writes FOLDER/measured.json and a header for each model. Needs the packages gguf, numpy and xllamacpp.
"""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from architectures import ARCHITECTURES, Size
from tiny_models import MODELS

KEYS = ("model", "context", "parallel", "flash_attention", "cache", "unified", "batch")

# model, context of one sequence, sequences, flash attention, type of the cache, one cache for all, batch
SHAPES = [(name, 4096, 1, flash, "f16", False, 512) for name in MODELS for flash in (False, True)] + [
    ("llama", 1000, 1, True, "f16", False, 512),
    ("llama", 1000, 3, True, "f16", False, 512),
    ("llama", 1024, 4, True, "f16", False, 512),
    ("llama", 1024, 4, False, "f16", False, 512),
    ("llama", 1024, 4, True, "f16", True, 512),
    ("llama", 4096, 1, True, "q8_0", False, 512),
    ("llama", 4096, 1, True, "q4_0", False, 512),
    ("llama", 4096, 1, True, "bf16", False, 512),
    ("llama", 4096, 1, True, "f32", False, 512),
    ("llama", 4096, 1, True, "f16", False, 2048),
    ("llama", 100, 1, True, "f16", False, 512),
    ("gemma3-windows", 2048, 4, True, "f16", False, 512),
    ("gemma3-windows", 2048, 4, True, "f16", True, 512),
    ("gemma3-windows", 1000, 3, True, "f16", True, 512),
    ("mamba-states", 1024, 4, True, "f16", False, 512),
    ("mamba-states", 256, 100, True, "f16", False, 512),
    ("lfm2-hybrid", 1024, 4, True, "f16", False, 512),
]

# The same for every architecture.
SETTINGS = [
    (4096, 1, True, "f16", False, 512),
    (4096, 1, False, "f16", False, 512),
    (300, 7, False, "f16", False, 512),
    (256, 60, True, "f16", False, 512),
    (256, 100, True, "f16", True, 512),
]

# Servers stay until the process ends: one that is ended while it begins may never end.
PROGRAM = """
import json, os, sys, time
import xllamacpp as x
servers = []
for line in sys.stdin:
    path, context, sequences, flash, cache, unified, batch = json.loads(line)
    params = x.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.kv_unified = context * sequences, sequences, unified
    params.n_batch, params.n_ubatch = max(2048, batch), batch
    switch = "ENABLED" if flash else "DISABLED"
    params.flash_attn_type = getattr(x.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + switch)
    kind = getattr(x.ggml_type, "GGML_TYPE_" + cache.upper())
    params.cache_type_k, params.cache_type_v = kind, kind
    params.load_mode = x.llama_load_mode.LLAMA_LOAD_MODE_NONE
    params.verbosity, params.warmup, params.fit_params, params.port = 5, False, False, 0
    try:
        servers.append(x.Server(params))
    except Exception as error:
        print(error, file=sys.stderr, flush=True)
time.sleep(0.3)
os._exit(0)
"""
AT_ONCE = 60


def start(folder, cases, numbers):
    """Starts llama.cpp with these cases, one after another, and returns what it printed for each that was begun.

    A thread of llama.cpp prints, later than the server begins: each case has a file name of its own to be known by.
    """
    lines = ""
    for number in numbers:
        name, *setting = cases[number]
        path = folder / f"case-{number}.gguf"
        if not path.exists():
            path.symlink_to(folder / f"{name}.gguf")
        lines += json.dumps([str(path), *setting]) + "\n"
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        command = [sys.executable, "-c", PROGRAM]
        try:
            subprocess.run(command, input=lines, text=True, stdout=log, stderr=log, timeout=60 + 2 * len(numbers))
        except subprocess.TimeoutExpired:
            pass
        log.seek(0)
        _, *parts = re.split(r"loading model '[^']*/case-(\d+)\.gguf'", log.read())
    return {int(number): text for number, text in zip(parts[::2], parts[1::2])}


def mebibytes(pattern, text):
    return round(sum(float(number) for number in re.findall(pattern + r"\s+([\d.]+) MiB", text)), 4)


def result(case, text):
    """The sizes of one case, or why there are none."""
    named = dict(zip(KEYS, case))
    if "compute buffer size =" not in text:
        reasons = [line for line in text.splitlines() if re.search(r" E |ASSERT|Failed", line)]
        return {**named, "refused": re.sub(r"^[\d.]+ E ", "", (reasons or ["nothing was printed"])[0])}
    return {
        **named,
        "weights_mib": mebibytes(r"load_tensors:\s+\S+ model buffer size =", text),
        "kv_mib": mebibytes(r"KV buffer size =", text),
        "states_mib": mebibytes(r"RS buffer size =", text),
        "compute_mib": mebibytes(r"compute buffer size =", text),
    }


def measure(models, cases, folder):
    """Measures all cases. Where llama.cpp refuses one or ends, a new process goes on from there: a case without sizes
    is refused if it was the first of its process."""
    lengths = {name: model.write_header(folder / f"{name}.gguf") for name, model in models.items()}
    results, todo = {}, list(range(len(cases)))
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name, model in models.items():
            model.write(scratch / f"{name}.gguf")
        while todo:
            begun = todo[:AT_ONCE]
            texts = start(scratch, cases, begun)
            made = {number: result(cases[number], texts.get(number, "")) for number in begun}
            results |= {number: case for number, case in made.items() if "refused" not in case or number == begun[0]}
            todo = [number for number in todo if number not in results]
    lines = ",\n    ".join(json.dumps(results[number]) for number in sorted(results))
    text = f'{{\n  "lengths": {json.dumps(lengths)},\n  "cases": [\n    {lines}\n  ]\n}}\n'
    (folder / "measured.json").write_text(text)


def random_size(by):
    heads = by.choice([2, 3, 4, 6, 8, 16])
    return Size(
        embd=heads * by.choice([16, 32, 64, 128]), ff=by.choice([64, 128, 384, 1000, 2048, 3000]), heads=heads,
        kv=by.choice([kv for kv in range(1, heads + 1) if heads % kv == 0]), head=by.choice([32, 64, 96]),
        vocab=by.choice([320, 1000, 20000]), used=by.choice([1, 2, 4, 8]), expert_ff=by.choice([32, 64, 160, 512]),
        shared_ff=by.choice([32, 128, 1024]), inner=by.choice([256, 512, 1024]), state=by.choice([8, 16, 64, 128]),
        groups=by.choice([1, 2]), rank=by.choice([8, 32]), lora=by.choice([32, 128]), rope=by.choice([16, 32]),
        window=by.choice([128, 512, 1024]))


def random_setting(by):
    sequences = by.choice([1, 2, 3, 5, 7, 12, 33, 60, 100, 128])
    context = min(by.choice([64, 100, 256, 300, 1000, 2048, 4096]), 40000 // sequences)
    cache = by.choice(["f16"] * 6 + ["f32", "bf16"])
    batch = by.choice([512, 512, 512, 1, 17, 64, 1024])
    return (context, sequences, by.random() < 0.6, cache, by.random() < 0.3, batch)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if sys.argv[2:3] == ["--random"]:
        count, by = int(sys.argv[3]), random.Random(int(sys.argv[4]))
        models = {f"{name}-{i}": build(random_size(by)) for name, build in ARCHITECTURES.items() for i in range(count)}
        cases = [(name, *random_setting(by)) for name in models for _ in range(4)]
    else:
        models = {**MODELS, **{f"architecture-{name}": build(Size()) for name, build in ARCHITECTURES.items()}}
        cases = SHAPES + [(f"architecture-{name}", *setting) for name in ARCHITECTURES for setting in SETTINGS]
    measure(models, cases, folder)


main()
