"""Ask for a password (getpass) or a name (input) and say what was given: asks.py password|name"""

import getpass
import sys
import time

time.sleep(2)
answer = getpass.getpass("Password: ") if sys.argv[1] == "password" else input("Name: ")
print(f"{len(answer)} characters", flush=True)
time.sleep(1)
