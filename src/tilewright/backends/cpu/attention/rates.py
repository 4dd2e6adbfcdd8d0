"""What the cost of CPU kernels of attention is counted in: `Rates` of cost.h.

The model counts cycles of the busiest thread: vector multiply-adds with lanes that hold no row, exponentials, what is
packed, what a tile costs however short its keys, and bytes from memory.  The constants were fitted to single-thread
runs on an AVX-512 server core that starts one such multiply-add a cycle; only their proportions matter.
"""

from __future__ import annotations

RATES = {
    "cycles_per_second": 3.7e9,
    "call": 1500.0,  # cycles of any call
    "wake": 3500.0,  # more when a team is woken
    "memory": 7.0,  # bytes a cycle one core gets from memory
    "loop": 1.8,  # cycles of a product in plain loops
    "weight": 15.0,  # a vector of scores made weights
    "touch": 12.0,  # and met by a bias, a mask, a cap
    "tile": 1500.0,  # a tile of rows
    "turn": 3.0,  # a vector of it transposed, there and back
    "pack": 2.5,  # a vector of a key or value packed
    "fold": 2.5,  # a product of lanes summed up
    "block": 150.0,  # a block of keys of a decode kernel
    "row": 60.0,  # and each row, or vector of rows, in it
    "near": 1024,  # bytes between keys that a decode kernel reads where they lie, though lanes are rows
    "small": 1 << 19,  # products below which a thread is not woken
    "items": 48,  # below, keys are shared among threads
}
