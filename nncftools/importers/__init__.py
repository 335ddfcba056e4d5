"""Imports logs of other recorders as sessions.

An importer is one module with two functions, ``recognises(head) -> bool`` and ``read(source) -> Session``. To add one,
write its file and list it here; no other file changes. ``recognises`` must not claim another tool's log. What ``read``
does not find in the log is unknown in the session, never 0.
"""

IMPORTERS = {
    "mprof": "nncftools.importers.mprof",
    "psrecord": "nncftools.importers.psrecord",
    "con-duct": "nncftools.importers.con_duct",
    "nncf": "nncftools.importers.nncf",
}
