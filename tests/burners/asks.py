"""Ask for a password (getpass) or a name (input) once FILE exists, print its length: asks.py password|name FILE"""

import getpass
import sys

from holding import hold

hold(sys.argv[2])
answer = getpass.getpass("Password: ") if sys.argv[1] == "password" else input("Name: ")
print(f"{len(answer)} characters", flush=True)
