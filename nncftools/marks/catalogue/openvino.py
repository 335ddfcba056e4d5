"""OpenVINO: conversion, reading, compilation and saving, and the tokenizers' conversion."""

CALLS = {
    "openvino.tools.ovc.convert": {"convert_model": {"kind": "Export"}},
    "openvino.tools.ovc.main": {"_convert": {"kind": "Export", "call": "ovc"}},
    "openvino._ov_api": {
        "Core.read_model": {"kind": "Model Loading"},
        "Core.compile_model": {"kind": "Compilation"},
        "Core.import_model": {"kind": "Model Loading"},
        "compile_model": {"kind": "Compilation"},
    },
    "openvino._pyopenvino": {
        "save_model": {"kind": "Saving", "saves": (1, "output_model")},
        "serialize": {"kind": "Saving", "saves": (1, "xml_path")},
    },
    "openvino_tokenizers.convert_tokenizer": {"convert_tokenizer": {"kind": "Export"}},
}
