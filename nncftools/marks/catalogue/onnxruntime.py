"""ONNX Runtime: sessions and quantization."""

CALLS = {
    "onnxruntime.capi.onnxruntime_inference_collection": {
        "InferenceSession.__init__": {"kind": "Model Loading", "call": "onnxruntime.InferenceSession"},
    },
    "onnxruntime.quantization.quantize": {
        "quantize_static": {"kind": "Quantization", "call": "onnxruntime.quantization.quantize_static"},
        "quantize_dynamic": {"kind": "Quantization", "call": "onnxruntime.quantization.quantize_dynamic"},
    },
}
