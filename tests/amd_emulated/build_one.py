"""Builds one kernel: its spec as JSON on standard input, the library's path on standard output.

A process of its own, so that whoever waits for it may stop waiting.
"""

from __future__ import annotations

import json
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


if __name__ == "__main__":
    main()
