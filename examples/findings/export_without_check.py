"""Export as ``optimum-cli export openvino`` does, but let torch not check the trace.

``python export_without_check.py --model DIR OUT``. The check traces the model a second time and runs both traces.
"""

import functools
import sys

import torch
from optimum.commands.optimum_cli import main

torch.jit.trace = functools.partial(torch.jit.trace, check_trace=False)
sys.argv = ["optimum-cli", "export", "openvino", *sys.argv[1:]]
main()
