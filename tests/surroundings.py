"""The process state that the tests assume and pass on to what they start."""

from __future__ import annotations

import os
import resource
import signal

HANGING_S = 120
"""The longest wait; nothing takes longer."""
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
_UNWANTED = {
    "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONWARNINGS", "PYTHONSTARTUP", "PYTHONOPTIMIZE", "PYTHONUTF8",
    "PYTHONIOENCODING", "PYTHONSAFEPATH", "PYTHONNOUSERSITE", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONTRACEMALLOC",
    "MALLOC_ARENA_MAX", "LD_PRELOAD", "MPLBACKEND", "TZ", "LANGUAGE", "SHELLOPTS", "POSIXLY_CORRECT",
}  # fmt: skip
_UNWANTED_PREFIXES = ("LC_", "NNCF_TOOLS_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "MPI_", "_TYPER_")
_WANTED = {"NNCF_TOOLS_REAL"}
_NUMBERS = sorted(map(int, signal.valid_signals()))
"""Plain numbers: enumerations take 1 s of the suite."""
_DESCRIPTORS = 4096


def settle() -> None:
    """Set signals, umask, limits, locale and environment; children inherit them."""
    _settle_signals()
    os.umask(0o022)
    _settle_limits()
    for name in list(os.environ):
        if name in _UNWANTED or (name.startswith(_UNWANTED_PREFIXES) and name not in _WANTED):
            del os.environ[name]
    os.environ.update(LANG="C.UTF-8", TERM="xterm-256color")


def _settle_signals() -> None:
    """Set signals as an interactive shell does for a program: none ignored, none blocked."""
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _settle_limits() -> None:
    """Use a desktop's limit of descriptors, and no core dumps: some tests kill processes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _DESCRIPTORS if most == resource.RLIM_INFINITY else min(_DESCRIPTORS, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def signals() -> object:
    """Return what a test must leave as it found it: signals that are handled, ignored or blocked."""
    return [signal.getsignal(number) for number in _NUMBERS], signal.pthread_sigmask(signal.SIG_BLOCK, ())
