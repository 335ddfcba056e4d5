"""NNCF: quantization, compression, pruning, and related steps."""

CALLS = {
    "nncf.quantization.quantize_model": {
        "quantize": {"kind": "Quantization"},
        "quantize_with_accuracy_control": {"kind": "Quantization"},
        "compress_weights": {"kind": "Weight Compression"},
    },
    "nncf.experimental.torch.fx.quantization.quantize_pt2e": {
        "quantize_pt2e": {"kind": "Quantization", "call": "nncf.experimental.torch.fx.quantize_pt2e"},
        "compress_pt2e": {"kind": "Weight Compression", "call": "nncf.experimental.torch.fx.compress_pt2e"},
    },
    "nncf.pruning.prune_model": {
        "prune": {"kind": "Weight Compression"},
        "batch_norm_adaptation": {"kind": "Training", "call": "nncf.batch_norm_adaptation"},
    },
    "nncf.common.strip": {"strip": {"kind": "Cleanup"}},
    "nncf.torch.function_hook.serialization": {
        "load_from_config": {"kind": "Model Loading", "call": "nncf.torch.load_from_config"},
    },
}
