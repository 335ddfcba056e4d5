"""First on the PYTHONPATH of a recorded command: makes its Pythons mark their operations, then removes its traces.

This folder does not stay on ``sys.path``. The sitecustomize that this one hides runs in its place; if there is none,
the import below fails as Python's own would. Any Python may meet this file: it parses with Python 2.7, and steps aside
for all before 3.10.
"""

import os
import sys

_HOOK = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "_nncf_tools_marks"
"""A name that nothing else uses: nncftools may not be installed here, or the program may import it."""
_FILE = "<frozen importlib._bootstrap nncf-tools>"
"""The file name of our code objects. It makes ``warnings`` and ``logging`` skip our frames and report the caller
(CPython's ``_is_internal_frame``), hides our files from coverage tools, and keeps torch.compile away.
"""

sys.path[:] = [entry for entry in sys.path if entry != _HOOK]
sys.path_importer_cache.pop(_HOOK, None)
if sys.version_info >= (3, 10):
    from _frozen_importlib_external import SourceFileLoader, spec_from_file_location

    def _renamed(code):
        constants = tuple(_renamed(item) if isinstance(item, type(code)) else item for item in code.co_consts)
        return code.replace(co_filename=_FILE, co_consts=constants)

    class _Loader(SourceFileLoader):
        def get_code(self, fullname):
            return _renamed(SourceFileLoader.get_code(self, fullname))

    class _Finder:
        @staticmethod
        def find_spec(name, _path=None, _target=None):
            if not name.startswith(_PACKAGE + "."):
                return None
            path = os.path.join(os.path.dirname(_HOOK), *name.split(".")[1:])
            inside = [path] if os.path.isdir(path) else None
            file = os.path.join(path, "__init__.py") if inside else path + ".py"
            return spec_from_file_location(name, file, loader=_Loader(name, file), submodule_search_locations=inside)

    def _start():
        try:
            if os.path.isfile(os.environ.get("NNCF_TOOLS_MARKS", "")):
                for function in _renamed, _Loader.get_code, _Finder.find_spec:
                    function.__code__ = _renamed(function.__code__)
                package = type(sys)(_PACKAGE)
                package.__path__ = []
                sys.modules[_PACKAGE] = package
                sys.meta_path.insert(0, _Finder)
                __import__(_PACKAGE + ".autoload")
                package.autoload.start()
        except Exception:  # a program that cannot be marked must run as it would have
            pass

    _start()
_this = sys.modules.pop("sitecustomize", None)  # Python 2 would clear the names of a module that nobody holds
__import__("sitecustomize")
