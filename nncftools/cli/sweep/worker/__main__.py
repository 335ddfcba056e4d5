"""Run one step: ``python …/worker JOB SWEEP``, two descriptors that ``steps`` explains.

The folder is loaded by path: nncf-tools need not be installed there.
"""

import importlib
import importlib.util
import pathlib
import sys

NAME = "nncf_tools_sweep_worker"


def _load() -> None:
    folder = pathlib.Path(__file__).parent
    spec = importlib.util.spec_from_file_location(
        NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    sys.modules[NAME] = importlib.util.module_from_spec(spec)


if __name__ == "__main__":
    sys.path.pop(0)
    _load()
    importlib.import_module(f"{NAME}.steps").run(*map(int, sys.argv[1:]))
