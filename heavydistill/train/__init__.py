"""Training on sets: SFT of both roles and GRPO, with TRL and PEFT.

Data flow of SFT: ``sft`` reads the arguments, ``datasets`` finds the rows, ``sft_data`` turns
them into tokens and packs them, ``loop`` trains, ``checkpoints`` sees to it that what lies in the
output folder is whole. ``grpo`` has prompts and rewards in place of rows.
"""

import os

# TRL reports every training to its authors; the Hub's client reads this when it is imported.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
