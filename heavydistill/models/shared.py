"""Things that several users in this process share: opened by the first, closed by the last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


@dataclass(slots=True)
class _Lent(Generic[_Item]):
    item: _Item
    users: int = 0


class SharedResources(Generic[_Item]):
    """Things of one kind, which are the same where their key is. Any thread may borrow one.

    Args:
        close: Called with one that has no user left.
    """

    def __init__(self, close: Callable[[_Item], None]) -> None:
        self._close = close
        self._lent: dict[Hashable, _Lent[_Item]] = {}
        self._lock = threading.Lock()

    def borrow(self, key: Hashable, make: Callable[[], _Item]) -> _Item:
        """The one of that key, which ``make`` makes if there is none; give it back once."""
        with self._lock:
            if key not in self._lent:
                self._lent[key] = _Lent(make())
            lent = self._lent[key]
            lent.users += 1
            return lent.item

    def give_back(self, item: _Item) -> None:
        """End a use of it; one that was not borrowed here is closed."""
        with self._lock:
            key = next((key for key, lent in self._lent.items() if lent.item is item), None)
            if key is not None:
                self._lent[key].users -= 1
                if self._lent[key].users:
                    return
                del self._lent[key]
        self._close(item)
