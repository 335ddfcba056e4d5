"""Imports logs of other recorders as sessions.

An importer is one module with the class ``Log``, a table of what its lines are: see ``RowLog`` in ``table.py``. To add
one, write its file and list it here; no other file changes. The pattern ``head`` must not match another tool's log. A
figure that is not in the log is unknown in the session, never 0.
"""

IMPORTERS = {
    "mprof": "nncftools.importers.mprof",
    "psrecord": "nncftools.importers.psrecord",
    "con-duct": "nncftools.importers.con_duct",
    "nncf": "nncftools.importers.nncf",
}
