"""The cache that forgets the least recently used first."""

from __future__ import annotations

from tilewright.lru import LruCache


def test_what_is_used_stays() -> None:
    cache: LruCache[int, str] = LruCache(lambda: 3)
    for key in range(3):
        cache.put(key, str(key))
    assert cache.get(0) == "0"
    cache.put(3, "3")
    assert list(cache.values()) == ["2", "0", "3"]
    assert cache.get(1) is None
    cache.put(2, "another")
    assert cache.get(2) == "2", "the first that was put stays"
    cache.put(4, "4")
    assert (cache.get(0), cache.get(2), len(cache)) == (None, "2", 3)


def test_the_limit_is_that_of_the_moment() -> None:
    most = 3
    cache: LruCache[int, int] = LruCache(lambda: most)
    for key in range(1, 4):
        cache.put(key, key)
    most = 1
    cache.put(9, 9)
    assert list(cache.values()) == [9]


def test_the_last_that_was_kept_stays_and_the_number_is_told() -> None:
    cache: LruCache[int, str] = LruCache(lambda: 2)
    assert [cache.keep(1, "first"), cache.keep(1, "second"), cache.keep(2, "2"), cache.keep(3, "3")] == [1, 1, 2, 2]
    assert (cache.get(1), cache.get(2), cache.get(3)) == (None, "2", "3")
