"""Imports logs of other recorders as sessions.

An importer is a module with the class ``Log``, a subclass of ``RowLog`` in ``source.py`` that describes the lines. To
add an importer, write a file and list the file here; no other file changes. The pattern ``head`` must not match another
tool's log. A figure that is not in the log is unknown in the session, never 0.
"""

IMPORTERS = {
    "mprof": "nncftools.importers.mprof",
    "psrecord": "nncftools.importers.psrecord",
    "con-duct": "nncftools.importers.con_duct",
    "nncf": "nncftools.importers.nncf",
}
