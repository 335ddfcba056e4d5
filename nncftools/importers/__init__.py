"""Import logs of other recorders as sessions.

An importer is a subclass of ``RowLog`` in ``source.py`` that describes the lines of a log. To add an importer, write
the class and list the class here as ``module:Class``; no other file changes. The class attribute ``head``, a regular
expression for the first lines, must not match logs of other tools. If a log lacks a value, the value is unknown in the
session, never 0.
"""

IMPORTERS = {
    "mprof": "nncftools.importers.logs:Mprof",
    "psrecord": "nncftools.importers.logs:Psrecord",
    "con-duct": "nncftools.importers.logs:ConDuct",
    "nncf": "nncftools.importers.logs:Nncf",
}
