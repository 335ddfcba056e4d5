"""Run a step: ``python …/worker JOB SWEEP``.

JOB and SWEEP are descriptors (see ``run``). The folder is run by path, because the environment may not contain
nncf-tools.
"""

import importlib.util
import pathlib
import sys
import types

NAME = "nncf_tools_sweep_worker"


def _load() -> types.ModuleType:
    folder = pathlib.Path(__file__).parent
    spec = importlib.util.spec_from_file_location(
        NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[NAME] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


if __name__ == "__main__":
    sys.path.pop(0)
    _load().run(*map(int, sys.argv[1:]))
