"""Resources with several users in this process: opened by the first, closed by the last."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class SharedResources(Generic[_Item]):
    """Resources of one kind by key. Any thread may borrow one.

    Args:
        close: Called with a resource that has no user left.
    """

    def __init__(self, close: Callable[[_Item], None]) -> None:
        self._close = close
        self._items: dict[Hashable, _Item] = {}
        self._users: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def borrow(self, key: Hashable, make: Callable[[], _Item]) -> _Item:
        """The resource of a key, created by ``make`` if there is none; give it back once."""
        with self._lock:
            if key not in self._items:
                self._items[key] = make()
            self._users[key] += 1
            return self._items[key]

    def give_back(self, item: _Item) -> None:
        """End the use of a resource; one that was not borrowed here is closed."""
        with self._lock:
            key = next((key for key, lent in self._items.items() if lent is item), None)
            if key is not None:
                self._users[key] -= 1
                if self._users[key]:
                    return
                del self._items[key]
        self._close(item)
