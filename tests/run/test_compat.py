"""Contracts of the private parts of distilabel that ``pipeline.flow`` and its kin touch."""

import inspect
import re

import distilabel.distiset
import distilabel.pipeline.base as base
import distilabel.pipeline.batch_manager as batch_manager
import distilabel.pipeline.local as local
import distilabel.pipeline.ray as ray
import distilabel.pipeline.step_wrapper as step_wrapper
import pytest
from distilabel.utils import logging as distilabel_logging

from heavydistill.run import flow
from heavydistill.run.flow import _Buffer
from heavydistill.run.ray import HeavyRayPipeline


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("owner", "name", "expected"),
    [
        (base.BasePipeline, "_run_step", ["self", "step", "input_queue", "replica"]),
        (base.BasePipeline, "_create_step_input_queue", ["self", "step_name"]),
        (base.BasePipeline, "_process_batch", ["self", "batch", "send_last_batch_flag"]),
        (base.BasePipeline, "_setup_write_buffer", ["self", "use_cache"]),
        (base.BasePipeline, "_refresh_pipeline_from_cache", ["self"]),
        (base.BasePipeline, "_cache", ["self"]),
        (base.BasePipeline, "_set_steps_not_loaded_exception", ["self"]),
        (base.BasePipeline, "_run_output_queue_loop_in_thread", ["self"]),
        (base.BasePipeline, "_run_load_queue_loop_in_thread", ["self"]),
        (base.BasePipeline, "_output_queue_loop", ["self"]),
        (base.BasePipeline, "_run_load_queue_loop", ["self"]),
        (base.BasePipeline, "_stop_load_queue_loop", ["self"]),
        (base.BasePipeline, "_run_stage_steps_and_wait", ["self", "stage"]),
        (base.BasePipeline, "_steps_to_be_loaded_in_stage", ["self", "stage"]),
        (base.BasePipeline, "_run_steps", ["self", "steps"]),
        (base.BasePipeline, "_get_steps_load_stages", ["self"]),
        (base.BasePipeline, "_finalize_pipeline_execution", ["self"]),
        (base.BasePipeline, "_notify_steps_to_stop", ["self"]),
        (base.BasePipeline, "_is_step_running", ["self", "step_name"]),
        (base.BasePipeline, "_get_steps_load_status", ["self", "steps"]),
        (base.BasePipeline, "_manage_batch_flow", ["self", "batch"]),
        (base.BasePipeline, "_get_successors", ["self", "batch"]),
        (base.BasePipeline, "_request_batch_from_generator", ["self", "step_name"]),
        (base.BasePipeline, "_send_batch_to_step", ["self", "batch"]),
        (base.BasePipeline, "_load_batch_manager", ["self", "use_cache"]),
        (base.BasePipeline, "_register_batch", ["self", "batch"]),
        (batch_manager._BatchManager, "register_batch", ["self", "batch", "steps_data_path"]),
        (batch_manager._BatchManager, "can_generate", ["self"]),
        (batch_manager._BatchManager, "set_last_batch_sent", ["self", "batch"]),
        (batch_manager._BatchManager, "step_empty_buffers", ["self", "step_name"]),
        (batch_manager._BatchManager, "_missing_seq_no", ["self", "last_batch"]),
        (step_wrapper._StepWrapper, "_non_generator_process_loop", ["self"]),
        (step_wrapper._StepWrapper, "_send_batch", ["self", "batch"]),
        (local, "_init_worker", ["log_queue", "pipeline_name", "pipeline_cache_id"]),
        (distilabel.distiset, "_grab_citations", ["dag"]),
        (distilabel_logging, "stop_logging", []),
        (distilabel_logging, "setup_logging", ["log_queue", "filename", "logging_handlers"]),
        (base, "set_pipeline_running_env_variables", ["pipeline_name", "pipeline_cache_id"]),
    ],
)
def test_hook_has_the_signature_that_is_relied_on(
    owner: object, name: str, expected: list[str]
) -> None:
    assert parameters(getattr(owner, name)) == expected


def test_step_wrapper_takes_what_it_is_given() -> None:
    given = {
        "step",
        "replica",
        "input_queue",
        "output_queue",
        "load_queue",
        "dry_run",
        "ray_pipeline",
    }
    assert set(parameters(step_wrapper._StepWrapper.__init__)) == given | {"self"}


def test_step_wrapper_exception_carries_cause_and_traceback() -> None:
    error = step_wrapper._StepWrapperException("m", object(), 1, ValueError("x"))  # type: ignore[arg-type]
    assert isinstance(error.subprocess_exception, ValueError)
    assert "ValueError" in error.formatted_traceback


def test_write_buffer_is_used_through_two_methods_only() -> None:
    source = inspect.getsource(base) + inspect.getsource(local)
    used = set(re.findall(r"_write_buffer\.(\w+)", source))
    assert used == {"add_batch", "close"}
    assert used <= set(dir(_Buffer))


def test_received_numbers_are_only_kept_to_look_for_gaps() -> None:
    source = inspect.getsource(batch_manager)
    uses = re.findall(r".*_received_batch_seq_nos\[.*", source)
    assert [use.strip() for use in uses] == [
        "received_batch_seq_nos = self._received_batch_seq_nos[last_batch.step_name]",
        "self._received_batch_seq_nos[step_name].append(seq_no)",
    ]


def test_what_ray_pipeline_has_is_overridden_or_called_by_itself_alone() -> None:
    own = {name for name, member in vars(ray.RayPipeline).items() if inspect.isfunction(member)}
    overridden = {"run", "_set_steps_not_loaded_exception", "_create_step_input_queue", "_run_step"}
    called_by_its_run = {
        "_init_ray",
        "_get_ray_gpus_per_node",
        "_check_no_llms_using_offline_batch_generation",
        "_create_vllm_placement_group",
        "_teardown",
        "_stop",
    }
    assert own == overridden | called_by_its_run | {"__init__", "dump"}
    for name in overridden:
        assert getattr(HeavyRayPipeline, name) is not getattr(ray.RayPipeline, name)
    stays_unused = called_by_its_run - {"_teardown", "_stop"}
    assert not [name for name in stays_unused if name in inspect.getsource(base)]


def test_clients_that_log_every_request_are_silenced() -> None:
    assert {"httpx2", "httpcore2"} <= set(distilabel_logging._SILENT_LOGGERS)


def test_citations_are_not_looked_up() -> None:
    assert distilabel.distiset._grab_citations(object()) == []  # type: ignore[arg-type]


def test_another_distilabel_is_refused() -> None:
    assert flow.SUPPORTED == "1.5.3"
