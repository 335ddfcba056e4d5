"""Stand-in for QEfficient, which only installs with its hardware's tools: same modules, same names."""

from QEfficient.transformers.models.modeling_auto import QEFFAutoModelForCausalLM

__all__ = ["QEFFAutoModelForCausalLM"]
