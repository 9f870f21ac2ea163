"""check_safetensors.py WRITTEN TO_READ: reads what C++ wrote, writes the same for C++ to read."""
import json
import sys
import zlib

import torch

try:
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as error:
    print(f"safetensors cannot be imported: {error}")
    sys.exit(77)

TYPES = {
    "Byte": torch.uint8, "Double": torch.float64, "Float": torch.float32, "Half": torch.float16,
    "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8,
    "Bool": torch.bool,
}
expected = {name: (torch.arange(6).reshape(2, 3) % (2 if name == "Bool" else 7)).to(dtype)
            for name, dtype in TYPES.items()}
metadata = {"key": "välue"}

with safe_open(sys.argv[1], framework="pt") as file:
    found = file.metadata()
    checksums = json.loads(found.pop("prunex.crc32"))
    assert found == metadata, found
    assert checksums.pop("__metadata__") == "%08x" % zlib.crc32("key=välue\n".encode())
    assert sorted(checksums) == sorted(expected), checksums
    assert sorted(file.keys()) == sorted(expected), list(file.keys())
    for name, tensor in expected.items():
        got = file.get_tensor(name)
        assert got.dtype == tensor.dtype and torch.equal(got, tensor), (name, got)
        entry = file.get_slice(name)
        head = f"{name} {entry.get_dtype()} [{','.join(map(str, entry.get_shape()))}]\n"
        assert checksums[name] == "%08x" % zlib.crc32(head.encode() + got.view(torch.uint8).numpy().tobytes()), name
save_file(expected, sys.argv[2], metadata)
