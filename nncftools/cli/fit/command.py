"""``nncf-tools fit``: how little memory would do for a command."""

from __future__ import annotations

from dataclasses import replace

from nncftools.cli import planning
from nncftools.cli.fit.search import FitOptions
from nncftools.cli.parameters import with_options
from nncftools.errors import NncfToolsError


@with_options(FitOptions)
def fit(request: FitOptions) -> int:
    """Find the smallest memory limit with which a command works, and the smallest at full speed.

    \b
    Examples:
      nncf-tools fit python quantize.py
      nncf-tools fit --before 'rm -r OUT' optimum-cli export openvino -m DIR OUT
      nncf-tools fit --success 'test -s OUT/openvino_model.bin' ./export.sh
      nncf-tools fit --output fits/export --resume ./export.sh
      nncf-tools fit --free-only ./export.sh

    The command runs once without a limit and then, usually 2 to 7 times, in a
    control group with a limit. It works if it exits with 0, and the kernel killed
    none of its processes. Control groups need root, or a user's systemd.
    """
    planning.plan([], request.recorded)
    argv = planning.target(request.recorded)
    request.check_resume()
    from nncftools.cli.fit import runs
    from nncftools.limits import needs

    request = replace(request, words=argv)
    parent = None
    if not request.free_only:
        try:
            parent = needs.parent_group()
        except OSError as error:
            needs.start_in_scope()
            reason = error.strerror or error
            allowed = (
                "run it as root or, with control groups of version 2, as a user of systemd, "
                "or use --free-only for the floor and the comfortable amount of a free run"
            )
            raise NncfToolsError(
                f"no control group with a memory limit can be made here: {reason}; {allowed}"
            ) from error
    return runs.search(request, parent)
