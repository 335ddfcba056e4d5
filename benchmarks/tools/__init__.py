"""The tools that are compared: one file each, and a line here."""

from __future__ import annotations

from benchmarks.tools.base import HungError, Recording, Tool, ToolError
from benchmarks.tools.duct import Duct
from benchmarks.tools.mprof import Mprof
from benchmarks.tools.nncf_tools import NncfTools
from benchmarks.tools.procpath import Procpath
from benchmarks.tools.psrecord import Psrecord

__all__ = ["OURS", "PEERS", "HungError", "Recording", "Tool", "ToolError"]

OURS = NncfTools
PEERS = (Psrecord, Mprof, Duct, Procpath)
