"""Builds one kernel: its spec as JSON on standard input; on standard output the library's path, and the CPU seconds
that compilers took (0: it was in the store).

A process of its own, so that whoever waits for it may stop waiting.
"""

from __future__ import annotations

import json
import resource
import sys

from tilewright.build import Builder
from tilewright.errors import TilewrightError
from tilewright.ops import op


def main() -> None:
    data = json.load(sys.stdin)
    try:
        print(Builder().build_one(op(data["op"]).spec_from_dict(data)).path)
    except TilewrightError as error:
        sys.exit(str(error))
    print(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:.1f}")


if __name__ == "__main__":
    main()
