"""Touch MIB mebibytes, hold them for SECONDS or until FILE exists: touch.py MIB SECONDS|FILE [EXIT_STATUS]"""

import sys

from holding import hold

held = bytearray(int(float(sys.argv[1]) * 2**20))
held[::4096] = b"x" * len(held[::4096])
hold(sys.argv[2])
sys.exit(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
