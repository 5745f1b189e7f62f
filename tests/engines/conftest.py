"""The lane on real engines: ``bash scripts/test.sh engines`` installs them and runs this folder.

Without vLLM beside this Python nothing here is collected.
"""

import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
# For this process, in which GRPO's colocate mode runs, and for the servers that it starts.
ON_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}

if importlib.util.find_spec("vllm"):
    sys.path.insert(0, str(HERE / "vllm_cpu"))
    others = filter(None, [os.environ.get("PYTHONPATH")])
    os.environ.update(ON_CPU, PYTHONPATH=os.pathsep.join([sys.path[0], *others]))
else:
    collect_ignore_glob = ["test_*.py"]
