"""When files that choices depend on are looked at again: measurements, learned models, the lock file in force.

What this process writes counts at once (`changed`).  What others write is looked for whenever the last look is older
than SECONDS: a look takes about as long as a fifth of a selection, and sizes that change with every call would pay it
every time.  Whoever waits for another process that measures, trains or locks, and then calls, has the answer: no
process starts, writes and ends in so short a time.
"""

from __future__ import annotations

SECONDS = 0.01

generation = 0  # raised by what this process writes


def changed() -> None:
    """This process wrote such a file."""
    global generation
    generation += 1
