"""Where the `tilewright` script begins: Ctrl-C is one line and exit code 130 while the commands are imported, too."""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130  # as shells say it: 128 and the number of the signal


def main() -> None:
    try:
        from tilewright.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
