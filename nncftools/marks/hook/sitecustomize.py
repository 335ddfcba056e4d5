"""First on the PYTHONPATH of a recorded command: makes Pythons mark operations, then removes all traces of this file.

This folder does not stay on ``sys.path``. The program's own sitecustomize, hidden by this file, runs in its place; if
there is none, the import below fails, as it would without this file. Any Python may load this file: the code parses
with Python 2.7, and does nothing before 3.10.
"""

import os
import sys

_HOOK = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "_nncf_tools_marks"
"""A unique name: nncftools may not be installed here, or the program may import nncftools."""
_FILE = "<frozen importlib._bootstrap nncf-tools>"
"""The file name of our code objects. With this name, ``warnings`` and ``logging`` skip our frames and report the caller
(CPython's ``_is_internal_frame``), coverage tools ignore our files, and torch.compile stays away.
"""

sys.path[:] = [entry for entry in sys.path if entry != _HOOK]
sys.path_importer_cache.pop(_HOOK, None)
if sys.version_info >= (3, 10):
    from _frozen_importlib_external import SourceFileLoader, spec_from_file_location

    def _renamed(code):
        constants = list(code.co_consts)
        for number, constant in enumerate(constants):
            if isinstance(constant, type(code)):
                constants[number] = _renamed(constant)
        return code.replace(co_filename=_FILE, co_consts=tuple(constants))

    class _Loader(SourceFileLoader):
        def get_code(self, fullname):
            return _renamed(SourceFileLoader.get_code(self, fullname))

    class _Finder:
        @staticmethod
        def find_spec(name, _path=None, _target=None):
            package, _, module = name.partition(".")
            if package != _PACKAGE or not module:
                return None
            path = os.path.join(os.path.dirname(_HOOK), module + ".py")
            return spec_from_file_location(name, path, loader=_Loader(name, path))

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
        except Exception:  # a program that cannot be marked must run as without us
            pass

    _start()
_this = sys.modules.pop("sitecustomize", None)  # Python 2 would clear the names of a module without references
__import__("sitecustomize")
