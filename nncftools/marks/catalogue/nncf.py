"""NNCF: quantization, compression, pruning, and the steps inside of them.

The names are those of 3.4; ``tests/marks/nncf_versions.json`` says which of them older versions lack.
"""

CALLS = {
    "nncf.quantization.quantize_model": {
        "quantize": {
            "kind": "Quantization",
            "arguments": {
                "subset_size": "{} samples",
                "preset": "{value}",
                "mode": "{}",
                "model_type": "{value}",
                "target_device": "{}",
                "fast_bias_correction": "!full bias correction",
            },
        },
        "quantize_with_accuracy_control": {
            "kind": "Quantization",
            "arguments": {
                "subset_size": "{} samples",
                "preset": "{value}",
                "max_drop": "max drop {}",
                "model_type": "{value}",
                "target_device": "{}",
                "fast_bias_correction": "!full bias correction",
            },
        },
        "compress_weights": {
            "kind": "Weight Compression",
            "arguments": {
                "mode": "{}",
                "group_size": "g{}",
                "ratio": "ratio {}",
                "awq": "awq",
                "scale_estimation": "scale_estimation",
                "gptq": "gptq",
                "lora_correction": "lora_correction",
                "all_layers": "all_layers",
                "backup_mode": "backup {}",
                "sensitivity_metric": "{value}",
                "dataset": "dataset",
                "subset_size": "{} samples",
            },
            "always": ("mode",),
        },
    },
    "nncf.experimental.torch.fx.quantization.quantize_pt2e": {
        "quantize_pt2e": {
            "kind": "Quantization",
            "call": "nncf.experimental.torch.fx.quantize_pt2e",
            "arguments": {"subset_size": "{} samples", "fast_bias_correction": "!full bias correction"},
        },
        "compress_pt2e": {
            "kind": "Weight Compression",
            "call": "nncf.experimental.torch.fx.compress_pt2e",
            "arguments": {
                "ratio": "ratio {}",
                "awq": "awq",
                "scale_estimation": "scale_estimation",
                "gptq": "gptq",
                "lora_correction": "lora_correction",
                "dataset": "dataset",
                "subset_size": "{} samples",
            },
        },
    },
    "nncf.pruning.prune_model": {
        "prune": {"kind": "Weight Compression", "arguments": {"mode": "{}", "ratio": "ratio {}"}},
        "batch_norm_adaptation": {"kind": "Training", "call": "nncf.batch_norm_adaptation"},
    },
    "nncf.common.strip": {"strip": {"kind": "Cleanup"}},
    "nncf.torch.function_hook.serialization": {
        "load_from_config": {"kind": "Model Loading", "call": "nncf.torch.load_from_config"},
    },
    # Steps of quantization and of weight compression.
    "nncf.common.tensor_statistics.aggregator": {"StatisticsAggregator.collect_statistics": {"name": "Statistics"}},
    # Steps of weight compression.
    "nncf.quantization.algorithms.weight_compression.mixed_precision": {
        "MixedPrecisionCriterion.apply": {"name": "Mixed precision"},
    },
    "nncf.quantization.algorithms.weight_compression.awq": {"AWQ.apply": {"name": "AWQ"}},
    "nncf.quantization.algorithms.weight_compression.scale_estimation": {
        "ScaleEstimation.apply": {"name": "Scale estimation"},
    },
    "nncf.quantization.algorithms.weight_compression.gptq": {"GPTQ.apply": {"name": "GPTQ"}},
    "nncf.quantization.algorithms.weight_compression.lora_correction": {
        "LoraCorrectionAlgorithm.calculate_adapters": {"name": "LoRA correction"},
    },
    "nncf.experimental.quantization.algorithms.weight_compression.codebook_estimation": {
        "CodebookEstimation.apply": {"name": "Codebook estimation"},
    },
    "nncf.quantization.algorithms.weight_compression.openvino_backend": {
        "OVWeightCompressionAlgoBackend.transform_model": {"name": "Weight loop"},
    },
    "nncf.quantization.algorithms.weight_compression.torch_backend": {
        "PTWeightCompressionAlgoBackend.transform_model": {"name": "Weight loop"},
    },
    "nncf.quantization.algorithms.weight_compression.torch_fx_backend": {
        "FXWeightCompressionAlgoBackend.transform_model": {"name": "Weight loop"},
    },
    "nncf.quantization.algorithms.weight_compression.onnx_backend": {
        "ONNXWeightCompressionAlgoBackend.transform_model": {"name": "Weight loop"},
    },
    # Steps of quantization.
    "nncf.quantization.algorithms.smooth_quant.algorithm": {"SmoothQuant.apply": {"name": "SmoothQuant"}},
    "nncf.quantization.algorithms.channel_alignment.algorithm": {
        "ChannelAlignment.apply": {"name": "Channel alignment"},
    },
    "nncf.quantization.algorithms.min_max.algorithm": {"MinMaxQuantization.apply": {"name": "MinMax"}},
    "nncf.quantization.algorithms.fast_bias_correction.algorithm": {
        "FastBiasCorrection.apply": {"name": "Fast bias correction"},
    },
    "nncf.quantization.algorithms.bias_correction.algorithm": {"BiasCorrection.apply": {"name": "Bias correction"}},
    "nncf.quantization.algorithms.hyperparameter_tuner.algorithm": {
        "HyperparameterTuner.apply": {"name": "Hyperparameter tuning"},
    },
    "nncf.quantization.algorithms.accuracy_control.algorithm": {
        "QuantizationAccuracyRestorer.apply": {"name": "Accuracy control"},
    },
    "nncf.quantization.algorithms.accuracy_control.evaluator": {
        "Evaluator.collect_metric_results": {"name": "Validation"},
    },
    "nncf.quantization.algorithms.accuracy_control.ranker": {
        "Ranker.rank_groups_of_quantizers": {"name": "Ranking"},
    },
}
