"""Have NUMBER children until all were sampled, and print the own limit of open files: crowd.py NUMBER"""

import os
import resource
import sys

from sampling import until_sampled

print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
reader, writer = os.pipe()
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
until_sampled(3)
os.close(writer)
for _ in range(int(sys.argv[1])):
    os.wait()
