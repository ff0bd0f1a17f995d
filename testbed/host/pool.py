# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Processes of a pool. Each of them imports this module, which imports nothing that takes long."""

import os
import signal
import threading
from multiprocessing import parent_process


def end_with_parent() -> None:
    """End this process of a pool when its parent ends, because it would wait for jobs without end.

    A signal on the parent's death would be missed during imports. The parent alone decides what an
    interrupt from the keyboard ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
