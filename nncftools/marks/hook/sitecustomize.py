"""Starts marking in each Python of a recorded command, then removes all traces of this file.

The folder of this file is first on the PYTHONPATH of the command. The folder does not stay on ``sys.path``. This file
hides the program's own sitecustomize, and therefore imports it at the end. If there is none, that import fails, as it
would without this file. Any Python may load this file, so Python 2.7 must be able to parse the code. Before version
3.10, this file only imports the program's own sitecustomize.
"""

import os
import sys

_HOOK = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "_nncf_tools_marks"
"""The package name for the hook's modules. The name is not nncftools: the program may import another nncftools, or none
may be installed.
"""
_FILE = "<frozen importlib._bootstrap nncf-tools>"
"""The file name of our code objects. With this name, ``warnings`` and ``logging`` skip our frames and report the caller
(CPython's ``_is_internal_frame``), coverage tools ignore our files, and torch.compile skips our functions.
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
_this = sys.modules.pop("sitecustomize", None)  # a reference: Python 2 clears the names of a module without references
__import__("sitecustomize")
