"""The heavy pipeline as a distilabel recipe: copy it and change what you like.

    python pipelines/heavy.py                                     # the micro teacher, 12 problems
    python pipelines/heavy.py --config configs/generate/vllm.yaml

``build_heavy_pipeline`` wires the same steps from a configuration; here they are spelled out.
Every step is an ordinary distilabel step, so your own go between them with ``>>``. The guard at
the end is needed: each step runs in a process of its own, which imports this file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from heavydistill.config import load_config
from heavydistill.pipeline.compat import HeavyPipeline
from heavydistill.pipeline.llm import HeavyLLM
from heavydistill.pipeline.steps import BuildCaches, LabelTraces, LoadProblems, Verify
from heavydistill.pipeline.tasks import Deliberate, SampleTrajectories
from heavydistill.schema import Trace, arrow_schema
from heavydistill.teachers.complete import complete, sampling_of
from heavydistill.teachers.registry import find


def build(path: Path | None) -> HeavyPipeline:
    """One round of deliberation."""
    config = complete(load_config(path, None if path else {"problems.size": 12}))
    with HeavyPipeline("heavy", arrow_schema(Trace)) as pipeline:
        load = LoadProblems(source=config.problems)
        think = SampleTrajectories(
            llm=HeavyLLM(
                teacher=config.thinker, sampling=sampling_of(config.think), endpoint=config.endpoint
            ),
            num_generations=config.think.k,
            domain=config.domain,
        )
        verify = Verify(name="verify_pool", column="pool")
        cache = BuildCaches(
            choice=config.cache,
            reader=find(config.deliberator, config.endpoint).tokenizer,
            domain=config.domain,
        )
        deliberate = Deliberate(
            llm=HeavyLLM(
                teacher=config.deliberator,
                sampling=sampling_of(config.deliberate),
                endpoint=config.endpoint,
            ),
            num_generations=config.deliberate.d,
        )
        judge = Verify(name="verify_deliberations", column="deliberations")
        load >> think >> verify >> cache >> deliberate >> judge >> LabelTraces()
    return pipeline


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, help="YAML file as for heavydistill generate")
    distiset = build(parser.parse_args().config).run()
    print(distiset)
    # distiset.push_to_hub("ORG/NAME", private=True)  # HF_TOKEN is read from the environment
