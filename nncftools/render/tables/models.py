"""What compressed models that a run saved say of their compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.session.model import SavedModel
    from nncftools.session.session import Session

_SETTING = 3
_SETTINGS = ("mode", "preset", "ratio", "group_size", "backup_mode", "subset_size", "model_type", "target_device")


def models(session: Session) -> Iterator[tuple[str, str]]:
    """Yield what saved models say of their compression."""
    for model in session.models:
        told = _compression(model)
        if told:
            yield "Compressed", printable(f"{model.path.rpartition('/')[2]}: {told}")


def _compression(model: SavedModel) -> str:
    """Return algorithm and settings, and which refinements were used: ``weight compression, mode int4_sym, awq``."""
    places = [(place.split("/"), value) for place, value in model.facts.items()]
    settings = [(parts[1], parts[2], value) for parts, value in places if parts[0] == "nncf" and len(parts) == _SETTING]
    said = [algorithm for algorithm, _, _ in settings]
    for wanted in _SETTINGS:
        said += [f"{name} {value}" for _, name, value in settings if name == wanted and value != "None"]
    said += [name for _, name, value in settings if value == "True"]
    return ", ".join(dict.fromkeys(said))
