"""OpenVINO: conversion, reading, compilation, inference and saving, and the tokenizers' conversion.

Inference is marked where it is called, and where the caller waits for it. Its first calls have lines of their own, so
that one that takes long or never ends is known.
"""

CALLS = {
    "openvino.tools.ovc.convert": {"convert_model": {"kind": "Export", "arguments": {"input_model": "{file}"}}},
    "openvino.tools.ovc.main": {"_convert": {"kind": "Export", "call": "ovc"}},
    "openvino._ov_api": {
        "Core.read_model": {"kind": "Model Loading", "arguments": {"model": "{file}"}},
        "Core.compile_model": {"kind": "Compilation", "arguments": {"model": "{file}", "device_name": "{}"}},
        "Core.import_model": {"kind": "Model Loading", "arguments": {"device_name": "{}"}},
        "compile_model": {"kind": "Compilation", "arguments": {"model": "{file}", "device_name": "{}"}},
        "CompiledModel.__call__": {"name": "Inference", "step": True, "logged": 10, "leaf": True},
        "InferRequest.infer": {"name": "Inference", "step": True, "logged": 10, "leaf": True},
        "InferRequest.start_async": {"name": "Inference", "step": True, "logged": 10, "leaf": True},
        "AsyncInferQueue.start_async": {"name": "Inference", "step": True, "logged": 10, "leaf": True},
    },
    "openvino._pyopenvino": {
        "save_model": {
            "kind": "Saving",
            "arguments": {"output_model": "{file}"},
            "saves": "output_model",
            "parameters": ("model", "output_model", "compress_to_fp16"),
        },
        "serialize": {
            "kind": "Saving",
            "arguments": {"xml_path": "{file}"},
            "saves": "xml_path",
            "parameters": ("model", "xml_path", "bin_path", "version"),
        },
        "InferRequest.wait": {"name": "Inference", "step": True, "logged": 10, "leaf": True},
        "AsyncInferQueue.wait_all": {"name": "Inference", "step": True, "logged": 10, "leaf": True},
    },
    "openvino_tokenizers.convert_tokenizer": {"convert_tokenizer": {"kind": "Export"}},
}
