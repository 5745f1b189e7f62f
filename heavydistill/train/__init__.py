"""Training on sets: SFT of both roles with TRL and PEFT.

The way of the data: ``arguments`` says what is wanted, ``mixture`` finds the rows, ``reading``
turns them into tokens and looks at each with the guard, ``packing`` fills sequences with them,
``sft`` trains, and ``keeping`` sees to it that what lies in the output folder is whole.
"""

import os

from heavydistill.models.local.adapter import quiet_bitsandbytes

# TRL tells its makers of every training; the Hub's client asks this when it is imported.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
quiet_bitsandbytes()
