"""Touch MIB mebibytes and hold them for SECONDS: touch.py MIB SECONDS [EXIT_STATUS]"""

import sys
import time

held = bytearray(int(float(sys.argv[1]) * 2**20))
held[::4096] = b"x" * len(held[::4096])
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
