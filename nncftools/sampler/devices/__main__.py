"""Entry of the helper: ``python -I -S …/devices/__main__.py SAMPLER PID CHILDREN [LABEL]``; see ``helper.main``."""

import os
import sys

if __name__ == "__main__":
    here = os.path.abspath(__file__)  # as in the sampler: pathlib would cost 16 ms of start
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(here)))))
    from nncftools.sampler.devices.helper import main

    main(*map(int, sys.argv[1:4]), is_detached=len(sys.argv) > 4)  # noqa: PLR2004 — the label
