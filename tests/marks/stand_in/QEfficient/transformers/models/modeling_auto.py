"""The classes that users call."""

from __future__ import annotations

from QEfficient.base.modeling_qeff import QEFFBaseModel


class QEFFTransformersBase(QEFFBaseModel):
    """Loads a model of transformers."""

    def __init__(self, name: str) -> None:
        """Take the model's name."""
        self.name = name

    @classmethod
    def from_pretrained(cls, name: str) -> QEFFTransformersBase:
        """Load a model."""
        return cls(name)

    def export(self) -> str:
        """Export the model and return where."""
        return self._export(self.name)

    def compile(self) -> str:
        """Export and compile the model."""
        return self._compile(self.export())


class QEFFAutoModelForCausalLM(QEFFTransformersBase):
    """A causal language model."""

    @classmethod
    def from_pretrained(cls, name: str) -> QEFFTransformersBase:
        """Load a model."""
        return super().from_pretrained(name)

    def generate(self, prompts: list[str]) -> list[str]:
        """Answer prompts."""
        return [prompt.upper() for prompt in prompts]
