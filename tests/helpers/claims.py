"""The slow tests of the default lane: for each claim one that proves it.

Other launches, faults and sizes are left to ``scripts/test.sh all``.
"""

CLAIMS = {
    "a run that is killed again and again ends as if undisturbed and no request is billed twice": (
        "cli/test_resume.py::test_a_run_that_is_killed_again_and_again_ends_as_if_undisturbed[4]"
    ),
    "a vLLM server that dies ends the run, and the same command goes on": (
        "cli/test_serve.py::test_a_server_that_dies_ends_the_run_and_the_same_command_goes_on"
    ),
    "a run that loses a node of its cluster finishes with the same rows": (
        "run/test_ray.py::test_a_run_that_loses_a_node_in_its_midst_finishes_with_the_same_rows"
    ),
    "a program that calls the package keeps its hooks, logging and signals": (
        "test_host_program.py::test_a_run_leaves_the_hooks_logging_and_signals_of_its_program"
    ),
    "programs that use the package pass strict type checkers without plugins": (
        "test_reference_types.py::test_the_programs_of_the_page_have_the_types_that_they_use"
    ),
    "the loop of the lessons, without distilabel, writes the rows of a run": (
        "test_learn.py::test_the_loop_writes_the_rows_of_a_run"
    ),
    "two processes give the traces of one": (
        "run/test_shards.py::test_two_processes_give_the_traces_of_one"
    ),
    "an installed package of plug-ins keeps the contract of every kind": (
        "test_contracts.py::test_an_installed_package_keeps_the_contract_of_every_kind"
    ),
    "distilabel's command line runs a saved pipeline": (
        "run/test_recipes.py::test_a_saved_pipeline_runs_from_the_command_line_of_distilabel"
    ),
    "TRL learns the completion of an export and nothing else": (
        "curate/test_export_readers.py::test_trl_learns_the_completion_alone"
    ),
    "a published model is used as its card says": (
        "hub/test_publish_model.py::test_what_was_published_is_used_as_its_card_says[full]"
    ),
    "recorded programs get the verdict of HumanEval": (
        "verifiers/code/test_code_humaneval.py::"
        "test_recorded_completions_get_the_verdict_of_the_benchmark[0]"
    ),
    "a program that waits for nothing is ended before the clock": (
        "sandbox/test_sandbox_limits.py::"
        "test_a_program_that_computes_nothing_is_ended_before_the_clock"
    ),
    "a training that is killed while it saves ends as if it was not": (
        "train/test_checkpoints.py::"
        "test_a_training_that_is_killed_while_it_saves_ends_as_if_it_was_not"
    ),
    "an installed wheel goes from traces to a measured student": (
        "test_wheel.py::test_an_installed_wheel_goes_from_generate_to_evaluate"
    ),
    "two processes train as one": (
        "train/test_launches.py::test_two_processes_train_as_one_does[cpu2-true]"
    ),
    "DeepSpeed trains as one process": (
        "train/test_launches.py::test_deepspeed_trains_as_one_process_does[zero2]"
    ),
    "joint gradients of two processes are those of plain loops": (
        "train/grpo/test_grpo_processes.py::"
        "test_gradients_are_those_of_plain_loops_over_the_episodes_of_all_processes"
    ),
    "a deliberator is trained by GRPO": (
        "train/grpo/test_grpo_learning.py::test_a_deliberator_is_really_trained"
    ),
    "thinkers and a deliberation learn as one episode": (
        "train/grpo/test_grpo_learning.py::test_thinkers_and_a_deliberation_learn_as_one_episode"
    ),
}
"""Claim to test, below tests/; without brackets all of its cases."""
