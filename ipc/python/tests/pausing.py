# SPDX-License-Identifier: Apache-2.0
"""Stops a service for a while, as a debugger would."""

import os
import signal
import time
from pathlib import Path


def pause(service):
    """Returns when all threads of the service stand still: some go on for a while after the signal was sent."""
    os.kill(service.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{service.pid}/task")
    while not all((task / "stat").read_text().rsplit(") ", 1)[1][0] == "T" for task in tasks.iterdir()):
        time.sleep(0.001)
