"""Asks the emulated card how large a batch may be, and never gets its answer: the command that is tried sleeps.

Run by test_terminated.py. Argument: a file that the command writes its process id to.
"""

import sys

from vramwise.batch_size import Prediction, predict_batch_size

WAITS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
command = [sys.executable, "-c", WAITS, sys.argv[1], "{batch}"]
predict_batch_size(Prediction(command, gpu="h200", memory="2GiB"), highest=4)
