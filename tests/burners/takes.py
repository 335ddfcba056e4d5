"""Take the whole screen once FILE exists and give it back when the other one does: takes.py FILE FILE"""

import sys

from holding import hold

hold(sys.argv[1])
sys.stdout.write("\033[?1049h\033[2;5HI have the screen")
sys.stdout.flush()
hold(sys.argv[2])
sys.stdout.write("\033[?1049l")
