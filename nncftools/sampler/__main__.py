"""Entry of the sampler process: ``python -I -S …/sampler/__main__.py JOURNAL IN OUT [LABEL]``, three descriptors.

``… devices SAMPLER PID CHILDREN [LABEL]`` starts the helper that reads GPUs and NPUs instead.

The isolated interpreter (``-I -S``) starts in half the time and takes 1 MiB less. The environment, which belongs to the
measured command and is passed on unchanged, does not affect it.
"""

import gc
import os
import sys

if __name__ == "__main__":
    here = os.path.abspath(__file__)  # pathlib would cost 16 ms of start and 1.5 MiB
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(here))))
    gc.disable()
    if sys.argv[1] == "devices":
        from nncftools.sampler import devices

        devices.main(*map(int, sys.argv[2:5]), is_detached=bool(sys.argv[5:]))
    from nncftools.sampler.service import main

    gc.enable()
    status = main(*map(int, sys.argv[1:4]))
    gc.freeze()  # at its end, Python would look for cycles in all modules
    sys.exit(status)
