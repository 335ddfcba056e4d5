"""First on the PYTHONPATH of a profiled command: makes its Pythons mark what they do, and then is as if it were not.

Nothing of this folder stays on ``sys.path``. The sitecustomize that this one stands before runs in its place; when
there is none, the import below says so, as Python's own would have.
"""

import os
import sys

_HOOK = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    """Install the finder, from a package of a name that nobody else uses: nncftools itself may not be installed."""
    name = "_nncf_tools_marks"
    try:
        if os.path.isfile(os.environ.get("NNCF_TOOLS_MARKS", "")):
            package = type(sys)(name)
            package.__path__ = [os.path.dirname(_HOOK)]
            sys.modules[name] = package
            __import__(name + ".autoload")
            sys.modules[name + ".autoload"].start()
    except Exception:  # noqa: BLE001, S110 — a program that cannot be marked must run as it would have
        pass


sys.path[:] = [entry for entry in sys.path if entry != _HOOK]
sys.path_importer_cache.pop(_HOOK, None)
_start()
sys.modules.pop("sitecustomize", None)
__import__("sitecustomize")
