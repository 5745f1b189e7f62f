"""Makes the golden results.

    python tests/golden/make.py                          all of them, and the micro models' journal
    python tests/golden/make.py printed/build.txt ...    these alone: a change that is meant

Run it with tests/helpers, tests/helpers/servers and scripts in PYTHONPATH. Results are those of the
program that is installed.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import scenes


def main(chosen: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if not chosen:
            for made in (scenes.RESULTS, scenes.JOURNAL):
                shutil.rmtree(made, ignore_errors=True)
                made.mkdir()
        stage = scenes.performed(Path(folder))
        if stage.failed:
            sys.exit("\n".join(f"{scene}: {why}" for scene, why in stage.failed.items()))
        for name in chosen or stage.kept:
            scenes.write(name, stage.kept[name])
        if not chosen:
            shutil.copytree(Path(folder) / "journals/micro", scenes.JOURNAL, dirs_exist_ok=True)


if __name__ == "__main__":
    main(sys.argv[1:])
