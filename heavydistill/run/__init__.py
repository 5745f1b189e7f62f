"""Runs: the distilabel steps, tasks and LLM, and ``build_heavy_pipeline`` which connects them.

``llm`` wraps an engine for distilabel, ``steps`` and ``tasks`` process the rows, ``recipe``
connects them, and ``pipeline`` executes the steps in this process. ``shards`` runs several
pipelines over one journal (``ray``: on a cluster). ``generate`` checks a run and executes it, and
``result`` writes its folder. ``estimate`` predicts the cost of a run, ``status`` records its
progress, and ``experiments`` compares several runs. No other package imports distilabel.
"""

import os
import warnings

# Both must be set before the first import of distilabel, in every process.
os.environ.setdefault("DISTILABEL_LOG_LEVEL", "WARNING")
warnings.filterwarnings("ignore", message=r"The '\w+' attribute with value .* was provided to")
