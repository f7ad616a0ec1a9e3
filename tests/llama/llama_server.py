"""A real llama.cpp server on the CPU, started like `llama-server`: the one inside the package xllamacpp.

    python llama_server.py --host 127.0.0.1 --port 8080 --model FILE [--alias NAME] [--ctx-size N] [--parallel N]
"""

import argparse
import signal
import sys

import xllamacpp

words = argparse.ArgumentParser()
words.add_argument("--host", default="127.0.0.1")
words.add_argument("--port", type=int, required=True)
words.add_argument("--model", required=True)
words.add_argument("--alias", default="")
words.add_argument("--ctx-size", type=int, default=512)
words.add_argument("--parallel", type=int, default=1)
words.add_argument("--n-gpu-layers", type=int, default=0)
words.add_argument("--flash-attn", choices=["on", "off"], default="on")
said, unused = words.parse_known_args()
if unused:
    print("not needed here:", *unused, flush=True)

params = xllamacpp.CommonParams()
params.model.path = said.model
params.hostnames = [said.host]
params.port = said.port
params.model_alias = {said.alias} if said.alias else set()
params.n_ctx = said.ctx_size
params.n_parallel = said.parallel
params.n_gpu_layers = said.n_gpu_layers
flash = "ENABLED" if said.flash_attn == "on" else "DISABLED"
params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + flash)
params.warmup = False
params.fit_params = False

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
server = xllamacpp.Server(params)
print("llama.cpp serves at", server.listening_address, flush=True)
while True:
    signal.pause()
