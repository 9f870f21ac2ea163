"""check_safetensors.py WRITTEN TO_READ: reads what C++ wrote, writes the same for C++ to read."""
import sys

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
    assert file.metadata() == metadata, file.metadata()
    assert sorted(file.keys()) == sorted(expected), list(file.keys())
    for name, tensor in expected.items():
        got = file.get_tensor(name)
        assert got.dtype == tensor.dtype and torch.equal(got, tensor), (name, got)
save_file(expected, sys.argv[2], metadata)
