"""``nncf-tools fit``: start the search for the smallest memory limit of a command."""

from __future__ import annotations

from dataclasses import replace

from nncftools.cli import planning
from nncftools.cli.fit_search import FitOptions
from nncftools.cli.parameters import with_options
from nncftools.errors import NncfToolsError

_NO_GROUP = (
    "no control group with a memory limit can be made here: {}; run as root or, with control groups of version 2, "
    "as a user of systemd, or use --free-only for the floor and the comfortable amount of a run without a limit"
)


@with_options(FitOptions)
def fit(request: FitOptions) -> int:
    """Find the smallest memory limit with which a command works, and the smallest limit with full speed.

    \b
    Examples:
      nncf-tools fit python quantize.py
      nncf-tools fit --before 'rm -r OUT' optimum-cli export openvino -m DIR OUT
      nncf-tools fit --success 'test -s OUT/openvino_model.bin' ./export.sh
      nncf-tools fit --output fits/export --resume ./export.sh
      nncf-tools fit --free-only ./export.sh

    The command runs once without a limit and then, usually 2 to 7 times, in a
    control group with a limit. A run worked if the exit status is 0 and the kernel
    killed none of the processes. Control groups need root, or a user's systemd.
    """
    planning.plan([], request.recorded)
    argv = planning.target(request.recorded)
    request.check_resume()
    from nncftools.cli import fit_runs
    from nncftools.limits import needs

    parent = None
    if not request.free_only:
        try:
            parent = needs.parent_group()
        except OSError as error:
            needs.start_in_scope()
            raise NncfToolsError(_NO_GROUP.format(error.strerror or error)) from error
    return fit_runs.search(replace(request, words=argv), parent)
