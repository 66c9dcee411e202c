"""Flower's SuperNode, which ends when its work has ended: python -m silosynth.deploy.supernode ARGUMENTS...

Flower 1.39's own program stays alive when the loop that asks the SuperLink for messages ends by an error (its database
was locked, say): the thread of its HTTP server keeps the process. Such a courier looks healthy and answers nobody; one
that has ended is seen by whoever watches over it.
"""

from __future__ import annotations

import os
import sys
import traceback

from flwr.supernode.cli.flower_supernode import flower_supernode


def main() -> None:
    try:
        flower_supernode()
    except SystemExit:
        raise  # Flower means to end: its threads have ended, or will be
    except BaseException:
        traceback.print_exc()
    print("The SuperNode has stopped asking for messages, for the reason above.", file=sys.stderr, flush=True)
    os._exit(1)  # threads that are left would keep the process


if __name__ == "__main__":
    main()
