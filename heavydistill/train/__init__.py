"""Training on sets: SFT of both roles and GRPO, with TRL and PEFT.

Data flow of SFT: ``arguments`` reads flags and files, ``datasets`` finds the rows, ``sft_data``
turns them into tokens and packs them, ``loop`` trains, and ``checkpoints`` keeps the output folder
whole. ``grpo`` has prompts and rewards in place of rows. ``script`` runs all of it for a verb, and
``launch`` starts several processes.
"""

import os

# TRL reports every training to its authors; the Hub's client reads this when it is imported.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
