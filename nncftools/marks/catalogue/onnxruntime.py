"""ONNX Runtime: sessions, inference and quantization."""

CALLS = {
    "onnxruntime.capi.onnxruntime_inference_collection": {
        "InferenceSession.__init__": {
            "kind": "Model Loading",
            "call": "onnxruntime.InferenceSession",
            "arguments": {"path_or_bytes": "{file}", "providers": "{}"},
        },
        "Session.run": {
            "name": "Inference",
            "call": "onnxruntime.InferenceSession.run",
            "step": True,
            "logged": 10,
            "leaf": True,
        },
    },
    "onnxruntime.quantization.quantize": {
        "quantize_static": {
            "kind": "Quantization",
            "call": "onnxruntime.quantization.quantize_static",
            "arguments": {"model_input": "{file}", "model_output": "to {file}", "weight_type": "{}"},
            "saves": "model_output",
        },
        "quantize_dynamic": {
            "kind": "Quantization",
            "call": "onnxruntime.quantization.quantize_dynamic",
            "arguments": {"model_input": "{file}", "model_output": "to {file}", "weight_type": "{}"},
            "saves": "model_output",
        },
    },
}
