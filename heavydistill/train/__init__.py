"""Training with TRL and PEFT on the sets of a build: SFT of both roles, distillation, and GRPO.

Data flow of SFT: ``arguments`` reads flags and files, ``datasets`` finds the rows, ``sft.data``
tokenizes and packs them, ``loop`` trains, and ``checkpoints`` keeps the output folder consistent.
``grpo`` has prompts and rewards instead of rows, ``distill`` prompts and a teacher; ``rollouts``
has what both share. ``held_out`` measures a policy on caches that it does not learn from, and
``guards`` watches its figures. ``script`` runs all of this for a command, and ``launch`` starts
several processes.
"""

import os

# TRL sends usage reports; the Hub's client reads this variable when it is imported.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
