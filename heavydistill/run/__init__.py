"""In which order: the distilabel steps, tasks and LLM, and ``build_heavy_pipeline``.

``llm`` puts an engine under distilabel, ``steps`` and ``tasks`` are the stations of a row,
``recipe`` wires them, ``runner`` executes the chain in this process, ``shards`` runs several of
these over one journal (``ray``: on a cluster), ``generate`` checks a run and makes it, and
``result`` writes its folder. ``estimate`` says beforehand what a run takes, ``status`` how far it
is, and ``experiments`` hold several runs against each other. Nothing outside this package imports
distilabel.
"""

import os
import warnings

# Both must be in place before the first import of distilabel, in every process.
os.environ.setdefault("DISTILABEL_LOG_LEVEL", "WARNING")
warnings.filterwarnings("ignore", message=r"The '\w+' attribute with value .* was provided to")
