"""A rendering process, started and fed by `tilewright.codegen.workers`; not a command for people."""

import sys

from tilewright.codegen.workers import serve

if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
