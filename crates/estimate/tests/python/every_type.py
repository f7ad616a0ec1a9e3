"""A file with every type of metadata and every type of tensor, written by the reference package, and what it reads back.

    python every_type.py FOLDER

writes FOLDER/every_type.gguf and FOLDER/every_type.json, and the same file in the other byte order. Needs gguf and numpy.
"""

import json
import pathlib
import sys

import gguf
import numpy as np

METADATA = {
    "t.uint8": (gguf.GGUFValueType.UINT8, 200),
    "t.int8": (gguf.GGUFValueType.INT8, -100),
    "t.uint16": (gguf.GGUFValueType.UINT16, 60000),
    "t.int16": (gguf.GGUFValueType.INT16, -30000),
    "t.uint32": (gguf.GGUFValueType.UINT32, 4000000000),
    "t.int32": (gguf.GGUFValueType.INT32, -2000000000),
    "t.float32": (gguf.GGUFValueType.FLOAT32, 0.5),
    "t.bool.true": (gguf.GGUFValueType.BOOL, True),
    "t.bool.false": (gguf.GGUFValueType.BOOL, False),
    "t.string": (gguf.GGUFValueType.STRING, "grüße, 世界"),
    "t.string.empty": (gguf.GGUFValueType.STRING, ""),
    "t.uint64": (gguf.GGUFValueType.UINT64, 2**63 + 5),
    "t.int64": (gguf.GGUFValueType.INT64, -(2**62)),
    "t.float64": (gguf.GGUFValueType.FLOAT64, 1e300),
    "t.array.int": (gguf.GGUFValueType.ARRAY, [1, -2, 3]),
    "t.array.float": (gguf.GGUFValueType.ARRAY, [0.25, -4.0]),
    "t.array.bool": (gguf.GGUFValueType.ARRAY, [True, False, True]),
    "t.array.string": (gguf.GGUFValueType.ARRAY, ["a", "", "déjà vu"]),
    "t.array.nested": (gguf.GGUFValueType.ARRAY, [[1, 2], [3]]),
    "t.array.long": (gguf.GGUFValueType.ARRAY, ["t"] * 4100),
    "t.string.long": (gguf.GGUFValueType.STRING, "x" * 2000),
}


def write(path, endian, keys, tensors):
    writer = gguf.GGUFWriter(str(path), "test", endianess=endian)
    for key in keys:
        kind, value = METADATA[key]
        writer.add_key_value(key, value, kind)
    for name, kind, shape, raw in tensors:
        writer.add_tensor(name, raw, raw_shape=shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantized():
    """One tensor of each type, three rows of one block or of 32 values."""
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        columns = max(block, 32)
        raw = np.zeros((3, columns // block * size), dtype=np.uint8)
        yield f"tensor.{kind.name}", kind, raw.shape, raw


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "every_type.gguf"
    write(path, gguf.GGUFEndian.LITTLE, METADATA, quantized())
    write(folder / "big_endian.gguf", gguf.GGUFEndian.BIG, ["t.uint32"], [])
    reader = gguf.GGUFReader(str(path))
    start = reader.data_offset
    tensors = [
        {"name": t.name, "type": int(t.tensor_type), "shape": [int(d) for d in t.shape], "bytes": int(t.n_bytes),
         "offset": int(t.data_offset) - start}
        for t in reader.tensors
    ]
    # The reference reader has no word for arrays inside arrays; for all else its word counts.
    metadata = {key: reader.fields[key].contents() for key in METADATA if key != "t.array.nested"}
    metadata["t.array.nested"] = METADATA["t.array.nested"][1]
    metadata["t.array.long"] = {"length": 4100}
    metadata["t.string.long"] = {"length": 2000}
    (folder / "every_type.json").write_text(json.dumps({"metadata": metadata, "tensors": tensors}, indent=1) + "\n")


main()
