"""Optimum and optimum-intel: the parts of an export, and what its models do.

Quantization and compression by optimum-intel are the calls of NNCF inside of it.
"""

CALLS = {
    "optimum.exporters.tasks": {
        "TasksManager.get_model_from_task": {
            "kind": "Model Loading",
            "arguments": {"model_name_or_path": "{file}", "task": "{}"},
        },
    },
    "optimum.exporters.openvino.stateful": {
        "patch_stateful": {"name": "Stateful model", "call": "optimum.exporters.openvino.patch_stateful"},
    },
    "optimum.exporters.openvino.convert": {
        "_save_model": {
            "kind": "Saving",
            "call": "optimum.exporters.openvino.save_model",
            "arguments": {"path": "{file}"},
            "saves": "path",
        },
        "export_tokenizer": {"kind": "Export", "call": "optimum.exporters.openvino.export_tokenizer"},
    },
    "optimum.modeling_base": {
        "OptimizedModel.save_pretrained": {
            "kind": "Saving",
            "arguments": {"save_directory": "{file}"},
            "saves": "save_directory",
        },
    },
    "optimum.intel.openvino.modeling_base": {
        "OVBaseModel.load_model": {
            "kind": "Model Loading",
            "call": "optimum.intel.OVBaseModel.load_model",
            "arguments": {"file_name": "{file}"},
        },
    },
    "optimum.intel.openvino.modeling_decoder": {
        "OVModelForCausalLM.generate": {
            "kind": "Generation",
            "call": "optimum.intel.OVModelForCausalLM.generate",
            "arguments": {"max_new_tokens": "{} new tokens"},
        },
    },
    "optimum.intel.openvino.quantization": {
        "OVCalibrationDatasetBuilder.build_from_quantization_config": {
            "name": "Calibration data",
            "call": "optimum.intel.OVCalibrationDatasetBuilder",
        },
    },
}
