"""Write files by the Python API: writers.py SESSION FOLDER CONTROL.

It records while it waits for the file ``go`` in the folder CONTROL, and ends with one line if anything fails.
"""

import sys
import time
from pathlib import Path

import nncftools

_MOST_S = 400


def main() -> None:
    """Copy a session; record, and write the recording's log and picture."""
    source, out, control = map(Path, sys.argv[1:])
    nncftools.Session.load(source).save(out / "copy.json")
    monitor = nncftools.MemoryMonitor(interval=0.05).start()
    (control / "begun").write_text("0")
    deadline = time.monotonic() + _MOST_S
    while not (control / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    (control / "ended").write_text("0")
    monitor.stop()
    monitor.save_memory_logs(*monitor.get_data(), save_dir=out)


try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
except Exception as error:  # noqa: BLE001 — whatever the API raises is one line here
    sys.exit(f"nncf-tools: error: {type(error).__name__}: {error}")
