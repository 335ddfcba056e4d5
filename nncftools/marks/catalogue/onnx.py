"""ONNX: reading and writing models, also under the names ``onnx.load_model`` and ``onnx.save_model``."""

CALLS = {
    "onnx": {
        "load": {"kind": "Model Loading", "arguments": {"f": "{file}"}},
        "save": {"kind": "Saving", "arguments": {"f": "{file}"}, "saves": "f"},
    },
}
