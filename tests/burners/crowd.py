"""Have NUMBER children, started by this process or by a thread each, until all were sampled.

crowd.py processes|threads NUMBER FILE [METRIC]: writes the own limits of open files to FILE. Children touch 1 MiB each;
those of threads are small. They live until METRIC was known twice, where one is named.
"""

import os
import resource
import signal
import sys
import threading

from sampling import MOST_S, touched, until_sampled, write

kind, number, file, *known = sys.argv[1:]
children: list[int] = []
done = threading.Event()
write(file, *resource.getrlimit(resource.RLIMIT_NOFILE))


def holder() -> int:
    """Fork a child that holds memory until its parent has closed the pipe."""
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        held = touched(1)
        os.write(touched_it, b"x")
        os.read(reader, 1)
        os._exit(len(held) == 0)
    return pid


def thread() -> None:
    """Have a child of this thread, and live as long as it."""
    children.append(os.posix_spawnp("sleep", ["sleep", str(MOST_S)], os.environ))
    done.wait()


if kind == "processes":
    reader, writer = os.pipe()
    ready, touched_it = os.pipe()
    children += [holder() for _ in range(int(number))]
    for _ in children:
        os.read(ready, 1)
else:
    threads = [threading.Thread(target=thread) for _ in range(int(number))]
    for one in threads:
        one.start()
    while len(children) < int(number):
        os.sched_yield()
until_sampled(3)
for name in known:
    until_sampled(2, name)
for child in children:
    os.kill(child, signal.SIGKILL)
done.set()
for child in children:
    os.waitpid(child, 0)
