"""Writes a llama model of half a megabyte with random weights: python tiny_gguf.py FILE"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "crates/estimate/tests/python"))
from tiny_models import llama

llama(layers=2, embd=128, ff=256, heads=4, kv=2).write(sys.argv[1])
