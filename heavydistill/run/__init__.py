"""In which order: the distilabel steps, tasks and LLM, and ``build_heavy_pipeline``.

``llm`` puts an engine under distilabel, ``steps``, ``tasks`` and ``judging`` are the stations of a
row, ``curate`` wires them, ``run`` runs them and ``result`` writes what came out; ``evaluation``
makes two runs and compares them. ``estimate`` tells beforehand what a run takes, ``room`` whether
the caches fit.
``flow``, ``compat`` (steps on this machine), ``ray`` (steps on a cluster) and ``worker`` (inside a
step) hold every touch of distilabel's private parts.
Nothing outside this package imports distilabel.
"""

import os
import warnings

# Both must be in place before the first import of distilabel, in every process.
os.environ.setdefault("DISTILABEL_LOG_LEVEL", "WARNING")
warnings.filterwarnings("ignore", message=r"The '\w+' attribute with value .* was provided to")
