"""Import what the catalogue lists and write as JSON what of it is not marked: catalogued.py

Runs with the hook, in the environment of requirements.txt; libraries that are not installed are left out.
"""

import importlib
import importlib.util
import json

from _nncf_tools_marks.autoload import LIBRARIES, catalogued


def is_marked(module_name: str, function: str) -> bool:
    """Return whether a function is marked, where it is listed or in the class that it is inherited from."""
    found = importlib.import_module(module_name)
    for part in function.split("."):
        found = getattr(found, part)
    return "nncf-tools" in found.__code__.co_filename


def unmarked() -> dict[str, str]:
    """Return why, by function."""
    reasons = {}
    for library in sorted(name for name in LIBRARIES if importlib.util.find_spec(name)):
        listed = catalogued(LIBRARIES[library])
        for module in (name for name in listed if name.partition(".")[0] == library):
            for function in listed[module]:
                try:
                    if not is_marked(module, function):
                        reasons[f"{module}:{function}"] = "not marked"
                except (ImportError, AttributeError) as error:
                    reasons[f"{module}:{function}"] = str(error)
    return reasons


if __name__ == "__main__":
    print(json.dumps(unmarked()))
