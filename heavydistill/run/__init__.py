"""In which order: the distilabel steps, tasks and LLM, and ``build_heavy_pipeline``.

``llm`` puts an engine under distilabel, ``steps``, ``tasks`` and ``judging`` are the stations of a
row, ``recipe`` wires them, ``runner`` executes the chain in this process, ``shards`` runs several
of these over one journal (``ray``: on a cluster), ``generate`` makes a run of it and ``result``
writes its folder; ``evaluation`` makes two runs and compares them. ``estimate`` tells beforehand
what a run takes, ``context_check`` whether the caches fit.
Nothing outside this package imports distilabel.
"""

import os
import warnings

# Both must be in place before the first import of distilabel, in every process.
os.environ.setdefault("DISTILABEL_LOG_LEVEL", "WARNING")
warnings.filterwarnings("ignore", message=r"The '\w+' attribute with value .* was provided to")
