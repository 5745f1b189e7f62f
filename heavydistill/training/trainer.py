"""TRL's ``SFTTrainer`` but for its cards.

At every checkpoint it would write a card of its own over that of the output folder, which is made
of the record of the training (see ``record``), and in which users keep notes.
"""

from __future__ import annotations

from typing import Any

from trl import SFTTrainer


class CardlessTrainer(SFTTrainer):
    """Writes no card."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Do nothing."""
