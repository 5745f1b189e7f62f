"""Resources shared in this process: opened by the first user, closed by the last."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class SharedResources(Generic[_Item]):
    """Resources of one kind, each lent by its key to several users at a time. Thread-safe.

    Args:
        close: Called with a resource that has no users left.
    """

    def __init__(self, close: Callable[[_Item], None]) -> None:
        self._close = close
        self._items: dict[Hashable, _Item] = {}
        self._users: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def borrow(self, key: Hashable, make: Callable[[], _Item]) -> _Item:
        """Return the resource of a key, created by ``make`` if needed; ``give_back`` it once."""
        with self._lock:
            if key not in self._items:
                self._items[key] = make()
            self._users[key] += 1
            return self._items[key]

    def give_back(self, item: _Item) -> None:
        """End one use of a resource; a resource that was not borrowed here is closed."""
        with self._lock:
            key = next((key for key, lent in self._items.items() if lent is item), None)
            if key is not None:
                self._users[key] -= 1
                if self._users[key]:
                    return
                del self._items[key]
        self._close(item)
