"""The shipped launches really train: with the processes and the engine that they name, and alike.

Started as a user starts them, by ``heavydistill sft --accelerate`` with the shipped files, and
where that is said by ``accelerate launch``.
The losses of every step are those of one process with the same packs a step, so gradients are
summed, clipped and accumulated alike. The files of sizes are tried in this process, for they name
no launch. Not covered: FSDP2, which needs GPUs.
"""

import os
import shutil
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
import runs
from marked import MARK, alive, eventually
from trainings import Trained, last_checkpoint, logged, main, run_file, weights

from heavydistill.store.training_record import read_record
from heavydistill.train.callbacks import LOG

pytest.importorskip("trl", reason="TRL is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
ACCELERATE = ROOT / "configs" / "accelerate"
SFT = ROOT / "configs" / "sft"
STEPS, PACKS = 3, 4
# Runs a script as it is; at its first step each process writes which types DeepSpeed computes and
# adds in.
SHOWS_TYPES = """
import os, pathlib, runpy, sys
from deepspeed.runtime.engine import DeepSpeedEngine

step, file = DeepSpeedEngine.step, pathlib.Path(__file__).with_name("types." + os.environ["RANK"])

def shows(engine, *given, **named):
    DeepSpeedEngine.step = step
    file.write_text(f"{engine.get_data_types()[0]} {engine.optimizer.gradient_accumulation_dtype}")
    return step(engine, *given, **named)

DeepSpeedEngine.step = shows
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# Runs a script as it is. On a CPU, accelerate does not start DeepSpeed's own communication.
COMMUNICATES = """
import deepspeed, runpy, sys
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

register = UlyssesSPAttentionHF.register_with_transformers

def communicates(*given, **named):
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    return register(*given, **named)

UlyssesSPAttentionHF.register_with_transformers = communicates
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_LIMIT_S = 1700
_GONE_S = 300


@dataclass(frozen=True)
class SandboxResult:
    """A program that has ended: its exit code, and all that it printed."""

    code: int
    said: str


def run(*command: str, **environment: str) -> SandboxResult:
    """Run a program of this interpreter, and see that it leaves no process."""
    mark = f"heavydistill-launch-{uuid.uuid4().hex}"
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            MARK: mark,
            **environment,
        },
    )
    try:
        said, _ = process.communicate(timeout=_LIMIT_S)
        assert eventually(lambda: not alive(mark), _GONE_S), said
    finally:
        for pid in alive(mark):
            os.kill(pid, signal.SIGKILL)
    return SandboxResult(process.returncode, said)


def launched(launch: Path, sets: Path, out: Path, *flags: str, **environment: str) -> SandboxResult:
    """The micro deliberator, launched."""
    return run(
        *["-m", "heavydistill", "sft", "--accelerate", str(launch), "--config", "micro"],
        *["--role", "deliberator", "--dataset_name", str(sets), "--output_dir", str(out), *flags],
        **environment,
    )


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launches")
    runs.build(folder / "sets", runs.write_run(folder / "run", 30), student="micro-student")
    return folder / "sets"


def trained(
    launch: str, sets: Path, out: Path, processes: int, muon: str = "false", **environment: str
) -> Trained:
    ran = launched(
        ACCELERATE / f"{launch}.yaml",
        *(sets, out),
        *["--num_processes", str(processes)],
        *["--gradient_accumulation_steps", str(PACKS // processes)],
        *["--max_steps", str(STEPS), "--save_steps", str(STEPS), "--eval_steps", str(STEPS)],
        # A rate at which a few steps move weights by far more than two ways of adding differ.
        *["--learning_rate", "2.2e-3"],
        # The first step already changes weights, and engines that spread them have no Muon.
        *["--warmup_steps", "0", "--logging_steps", "1", "--muon", muon, "--disable_tqdm", "true"],
        **environment,
    )
    assert ran.code == 0, ran.said[-6000:]
    record = read_record(out)
    assert f"{processes} process" in ran.said and f", {record.launch.engine}, " in ran.said
    return Trained(out, record)


@pytest.fixture(scope="module")
def alone(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """One process, with which all others are compared."""
    done = trained("single", sets, tmp_path_factory.mktemp("alone") / "out", 1)
    assert (done.record.launch.processes, done.record.launch.engine) == (1, "single")
    # Later steps see weights that earlier ones have changed, by gradients that were clipped.
    assert len(set(logged(done.folder, "loss"))) == STEPS
    assert min(logged(done.folder, "grad_norm")) > 1
    return done


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where DeepSpeed puts what it compiles as it starts, a minute's work, once for all tests.

    A TORCH_EXTENSIONS_DIR of the environment is left as it is, and saves that minute.
    """
    pytest.importorskip("deepspeed")
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        said = "DeepSpeed compiles as it starts, and there is no C++ compiler"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(said)
    own = os.environ.get("TORCH_EXTENSIONS_DIR") or tmp_path_factory.mktemp("extensions")
    return {"TORCH_EXTENSIONS_DIR": str(own)}


@pytest.mark.parametrize(("launch", "muon"), [("cpu2", "true"), ("ddp", "false")])
def test_two_processes_train_as_one_does(launch, muon, sets, alone, tmp_path):
    one = alone if muon == "false" else trained("single", sets, tmp_path / "one", 1, muon)
    two = trained(launch, sets, tmp_path / "out", 2, muon)
    assert (two.record.launch.processes, two.record.launch.engine) == (2, "ddp")
    # Muon works out its directions in bfloat16, where what is added in another order shows.
    same(two, one, within=1e-3 if muon == "true" else 1e-4)


@pytest.mark.parametrize(
    "launch",
    [
        "zero2",
        "zero3",
        pytest.param(
            "zero3_offload",
            marks=pytest.mark.skipif(
                "TORCH_EXTENSIONS_DIR" not in os.environ,
                reason="its optimizer is compiled for minutes; no TORCH_EXTENSIONS_DIR keeps it",
            ),
        ),
    ],
)
def test_deepspeed_trains_as_one_process_does(launch, sets, alone, compiled, tmp_path):
    two = trained(launch, sets, tmp_path / "out", 2, **compiled)
    assert (two.record.launch.processes, two.record.launch.engine) == (2, launch[:5])
    assert "deepspeed" in two.record.versions
    # Each process has written its own share of the optimizer, which only DeepSpeed does.
    shares = list((last_checkpoint(two.folder) / f"global_step{STEPS}").glob("*optim_states.pt"))
    assert len(shares) == 2
    same(two, alone)


@pytest.mark.parametrize("launch", ["zero2", "zero3"])
def test_deepspeed_plays_episodes_learns_from_them_and_is_measured(
    launch, sets, compiled, tmp_path
):
    """In bfloat16, as the files for GPUs do; gradients are added in float32 all the same."""
    out = tmp_path / "out"
    shows = tmp_path / "shows.py"
    shows.write_text(SHOWS_TYPES, "utf-8")
    asked = run_file(tmp_path, 8, "think: {k: 2, sampling: {max_tokens: 192}}\n")
    ran = run(
        *["-m", "accelerate.commands.launch", "--num_processes", "2", "--main_process_port", "0"],
        *["--config_file", str(ACCELERATE / f"{launch}.yaml")],
        *[str(shows), "scripts/grpo.py"],
        *["--bf16", "true", "--config", str(ROOT / "configs" / "grpo" / "micro" / "joint.yaml")],
        *["--run", str(asked), "--model_name_or_path", "micro-student", "--output_dir", str(out)],
        *["--num_generations", "12", "--per_device_train_batch_size", "6", "--max_steps", "4"],
        *["--max_completion_length", "240", "--warmup_steps", "0", "--save_steps", "4"],
        *["--held_out_from", str(sets), "--held_out", "2", "--eval_steps", "4"],
        *["--per_device_eval_batch_size", "2", "--logging_steps", "1", "--disable_tqdm", "true"],
        **compiled,
    )
    assert ran.code == 0, ran.said[-6000:]
    types = [(tmp_path / f"types.{rank}").read_text("utf-8") for rank in (0, 1)]
    assert types == ["torch.bfloat16 torch.float32"] * 2
    record = read_record(out)
    assert (record.launch.processes, record.launch.engine) == (2, launch)
    assert record.result and record.result.steps == 4
    assert "attempts/right" in (out / LOG).read_text("utf-8") and " HM " in ran.said
    # All processes' episodes stand in the means, of which some were right and some were not.
    assert 0 < record.result.rollouts["reward"].first < 1
    assert {"eval_hm", "eval_v", "eval_pass_at_1"} <= record.result.rollouts.keys()
    assert 0 < change(out, runs.STUDENT) < 1e-2


def test_two_processes_that_share_a_row_train_as_one_does(sets, compiled, tmp_path):
    file, script = tmp_path / "ulysses.yaml", tmp_path / "communicates.py"
    script.write_text(COMMUNICATES, "utf-8")
    text = (ACCELERATE / "ulysses.yaml").read_text("utf-8")
    file.write_text(text.replace("sp_size: 8", "sp_size: 2"), "utf-8")
    flags = ["--config", str(SFT / "micro.yaml"), "--role", "deliberator", "--packing", "false"]
    flags += ["--dataset_name", str(sets), "--gradient_accumulation_steps", "1", "--muon", "false"]
    flags += ["--max_steps", str(STEPS), "--save_steps", str(STEPS), "--eval_steps", str(STEPS)]
    flags += ["--warmup_steps", "0", "--logging_steps", "1"]
    # Without a GPU, what the processes exchange must be of one length.
    flags += ["--pad_to_multiple_of", "1024"]
    done = []
    for processes, launch in ((1, ACCELERATE / "single.yaml"), (2, file)):
        out = tmp_path / str(processes)
        ran = run(
            *["-m", "accelerate.commands.launch", "--config_file", str(launch)],
            *["--num_processes", str(processes), "--main_process_port", "0", str(script)],
            *["scripts/sft.py", *flags, "--output_dir", str(out)],
            **compiled,
        )
        assert ran.code == 0, ran.said[-6000:]
        assert f"{STEPS} of 1 rows" in ran.said
        done.append(Trained(out, read_record(out)))
    alone, two = done
    assert two.record.launch.engine == "zero2, 2 share a row"
    assert logged(two.folder, "loss") == pytest.approx(logged(alone.folder, "loss"), abs=1e-4)
    # DeepSpeed and transformers both sum over the processes; what is clipped is the same.
    norms = [2 * norm for norm in logged(alone.folder, "grad_norm")]
    assert logged(two.folder, "grad_norm") == pytest.approx(norms, rel=1e-3)
    assert change(two.folder, alone.folder) < 1e-4 < change(two.folder, runs.STUDENT)


def same(two: Trained, alone: Trained, within: float = 1e-4) -> None:
    """Losses, gradients and what was learnt agree, and the model is there as a whole."""
    assert logged(two.folder, "loss") == pytest.approx(logged(alone.folder, "loss"), abs=1e-4)
    norms = logged(alone.folder, "grad_norm")
    assert logged(two.folder, "grad_norm") == pytest.approx(norms, rel=1e-4)
    assert two.record.result and alone.record.result
    assert two.record.result.eval_loss == pytest.approx(alone.record.result.eval_loss, abs=1e-3)
    assert two.record.result.tokens == alone.record.result.tokens
    for place in (two.folder, last_checkpoint(two.folder)):
        assert change(place, alone.folder) < within < change(place, runs.STUDENT)


def change(one: Path, other: Path) -> float:
    """The largest difference of a weight of two models."""
    left, right = weights(one), weights(other)
    assert set(left) == set(right)
    return max(float((left[name].float() - right[name].float()).abs().max()) for name in left)


def test_what_silently_is_one_process_says_so(sets, tmp_path):
    """accelerate starts one process where it was asked for two: it is seen before it trains."""
    text = (ACCELERATE / "cpu2.yaml").read_text()
    multi = tmp_path / "multi_cpu.yaml"
    multi.write_text(text.replace("MULTI_GPU\n", "MULTI_CPU\n"))
    assert multi.read_text() != text
    ran = launched(multi, sets, tmp_path / "out", "--dry_run", "true")
    assert ran.code == 0, ran.said
    assert "1 process, single" in ran.said


@pytest.mark.parametrize("launch", ["cpu2", "single"])
def test_ctrl_c_ends_all_processes_with_130(launch, sets, tmp_path):
    file, mark = tmp_path / "said", f"heavydistill-launch-{uuid.uuid4().hex}"
    words = ["sft", "--accelerate", launch, "--config", "micro", "--role", "deliberator"]
    words += ["--dataset_name", str(sets), "--output_dir", str(tmp_path / "out")]
    words += ["--max_steps", "400", "--disable_tqdm", "true", "--logging_steps", "1"]
    with file.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "heavydistill", *words],
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", MARK: mark},
        )
        assert eventually(lambda: " 2/400 " in file.read_text(), 900), file.read_text()
        process.send_signal(signal.SIGINT)  # to the verb alone
        assert process.wait(300) == 130
    assert eventually(lambda: not alive(mark), _GONE_S)
    text = file.read_text()
    assert "Interrupted. --resume_from_checkpoint true" in text and "Traceback" not in text


@pytest.mark.parametrize(
    ("size", "role", "method"),
    [
        ("1.7b", "thinker", "rslora"),
        ("4b-lora", "deliberator", "rslora"),
        ("4b-full", "both", "full"),
        ("32b-qlora", "deliberator", "qlora"),
    ],
)
def test_the_file_of_a_size_trains_another_model_too(size, role, method, sets, tmp_path):
    """All of its keys at work, best model and all, on the micro student."""
    if method == "qlora":
        pytest.importorskip("bitsandbytes")
    out = tmp_path / "out"
    code = main(
        [
            *["--config", str(SFT / f"{size}.yaml"), "--role", role, "--dataset_name", str(sets)],
            *["--model_name_or_path", "micro-student", "--use_cpu", "true", "--max_steps", "2"],
            *["--output_dir", str(out), "--gradient_accumulation_steps", "2"],
        ]
    )
    assert code == 0
    record = read_record(out)
    assert (record.method, record.role) == (method, role)
    weights = "model" if method == "full" else "adapter_model"
    assert (out / f"{weights}.safetensors").is_file()
    assert record.result and record.result.steps == 2
    # The best of both checkpoints is what is kept; each role was looked at that is learnt, and
    # rows for a deliberator have some for a thinker among them.
    roles = {"thinker"} | ({"deliberator"} if record.role != "thinker" else set())
    assert set(record.result.eval_loss) == roles
    assert {path.name for path in out.glob("checkpoint-*")} == {"checkpoint-1", "checkpoint-2"}
