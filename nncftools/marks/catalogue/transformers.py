"""Transformers: loading and saving, generation, the trainer."""

CALLS = {
    "transformers.modeling_utils": {
        "PreTrainedModel.from_pretrained": {
            "kind": "Model Loading",
            "arguments": {"pretrained_model_name_or_path": "{file}"},
        },
        "PreTrainedModel.save_pretrained": {
            "kind": "Saving",
            "arguments": {"save_directory": "{file}"},
            "saves": "save_directory",
        },
    },
    "transformers.tokenization_utils_base": {
        "PreTrainedTokenizerBase.from_pretrained": {
            "kind": "Model Loading",
            "arguments": {"pretrained_model_name_or_path": "{file}"},
        },
        "PreTrainedTokenizerBase.save_pretrained": {
            "kind": "Saving",
            "arguments": {"save_directory": "{file}"},
            "saves": "save_directory",
        },
    },
    "transformers.processing_utils": {
        "ProcessorMixin.from_pretrained": {
            "kind": "Model Loading",
            "arguments": {"pretrained_model_name_or_path": "{file}"},
        },
        "ProcessorMixin.save_pretrained": {
            "kind": "Saving",
            "arguments": {"save_directory": "{file}"},
            "saves": "save_directory",
        },
    },
    "transformers.generation.utils": {
        "GenerationMixin.generate": {"kind": "Generation", "arguments": {"max_new_tokens": "{} new tokens"}},
    },
    "transformers.trainer": {"Trainer.train": {"kind": "Training"}},
}
