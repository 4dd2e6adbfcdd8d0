"""A cache of at most so many entries, which forgets the one least recently used first; threads may share it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """`most` is asked at every insertion, so that a limit may be changed while there are caches."""

    __slots__ = ("_entries", "_lock", "_most")

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.RLock()  # a garbage collection inside of it may come here again

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        """What is under the key, now the most recently used; None where there is nothing."""
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: Key, value: Value) -> Value:
        """What is under the key then: the first that was put, where two threads put one at once."""
        with self._lock:
            kept = self._entries.setdefault(key, value)
            if kept is not value:  # what is new is the last already
                self._entries.move_to_end(key)
            while len(self._entries) > self._most():
                self._entries.popitem(last=False)
            return kept

    def keep(self, key: Key, value: Value) -> int:
        """As `put`, where it does not matter which of two that were put at once stays; how many there are then.

        The key is hashed once.
        """
        with self._lock:
            entries = self._entries
            entries[key] = value
            while len(entries) > self._most():
                entries.popitem(last=False)
            return len(entries)

    def items(self) -> list[tuple[Key, Value]]:
        """Least recently used first, as they are now."""
        with self._lock:
            return list(self._entries.items())

    def values(self) -> Iterator[Value]:
        """Least recently used first."""
        with self._lock:
            return iter(list(self._entries.values()))
