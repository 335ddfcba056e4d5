"""Transformers: loading and saving, generation, the trainer."""

CALLS = {
    "transformers.modeling_utils": {
        "PreTrainedModel.from_pretrained": {"kind": "Model Loading"},
        "PreTrainedModel.save_pretrained": {"kind": "Saving"},
    },
    "transformers.tokenization_utils_base": {
        "PreTrainedTokenizerBase.from_pretrained": {"kind": "Model Loading"},
        "PreTrainedTokenizerBase.save_pretrained": {"kind": "Saving"},
    },
    "transformers.processing_utils": {
        "ProcessorMixin.from_pretrained": {"kind": "Model Loading"},
        "ProcessorMixin.save_pretrained": {"kind": "Saving"},
    },
    "transformers.generation.utils": {"GenerationMixin.generate": {"kind": "Generation"}},
    "transformers.trainer": {"Trainer.train": {"kind": "Training"}},
}
