"""Optimum and optimum-intel: the parts of an export; quantization and saving of its models."""

CALLS = {
    "optimum.exporters.tasks": {"TasksManager.get_model_from_task": {"kind": "Model Loading"}},
    "optimum.exporters.openvino.convert": {
        "_save_model": {"kind": "Saving", "call": "optimum.exporters.openvino.save_model"},
        "export_tokenizer": {"kind": "Export", "call": "optimum.exporters.openvino.export_tokenizer"},
    },
    "optimum.modeling_base": {"OptimizedModel.save_pretrained": {"kind": "Saving"}},
    "optimum.intel.openvino.modeling_base": {
        "OVBaseModel.load_model": {"kind": "Model Loading", "call": "optimum.intel.OVBaseModel.load_model"},
    },
    "optimum.intel.openvino.modeling_decoder": {
        "OVModelForCausalLM.generate": {"kind": "Generation", "call": "optimum.intel.OVModelForCausalLM.generate"},
    },
    "optimum.intel.openvino.quantization": {
        "_weight_only_quantization": {
            "kind": "Weight Compression",
            "call": "optimum.intel.OVQuantizer.weight_only_quantization",
        },
        "_full_quantization": {"kind": "Quantization", "call": "optimum.intel.OVQuantizer.full_quantization"},
        "_mixed_quantization": {"kind": "Quantization", "call": "optimum.intel.OVQuantizer.mixed_quantization"},
        "OVCalibrationDatasetBuilder.build_from_quantization_config": {
            "kind": "Quantization",
            "call": "optimum.intel.OVCalibrationDatasetBuilder",
        },
    },
}
