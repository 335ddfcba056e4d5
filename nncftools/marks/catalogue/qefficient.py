"""QEfficient (Qualcomm Cloud AI 100): loading, export to ONNX, compilation, generation."""

CALLS = {
    "QEfficient.base.modeling_qeff": {
        "QEFFBaseModel._export": {"kind": "Export", "call": "QEfficient.QEFFBaseModel.export"},
        "QEFFBaseModel._compile": {"kind": "Compilation", "call": "QEfficient.QEFFBaseModel.compile"},
    },
    "QEfficient.transformers.models.modeling_auto": {
        "QEFFTransformersBase.from_pretrained": {
            "kind": "Model Loading",
            "arguments": {"pretrained_model_name_or_path": "{file}"},
        },
        "QEFFAutoModelForCausalLM.from_pretrained": {
            "kind": "Model Loading",
            "arguments": {"pretrained_model_name_or_path": "{file}"},
        },
        "QEFFAutoModelForCausalLM.generate": {"kind": "Generation"},
    },
}
