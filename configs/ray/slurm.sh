#!/usr/bin/env bash
# A run on all nodes of a Slurm job:
#
#   sbatch --nodes=4 configs/ray/slurm.sh --teacher path/to/checkpoint --problems my.jsonl --out runs/big
#
# Passes its arguments to `heavydistill generate`. Submit from a folder that all nodes see, with .venv in
# it. Ray starts on every node, the command runs on the first, and at the end Ray is stopped on the
# whole node, so no other job may share it.
# After a time limit or a lost node, submit the same command again: it continues from the journal.
#SBATCH --job-name=heavydistill
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --exclusive
#SBATCH --time=24:00:00
set -euo pipefail

cd "$SLURM_SUBMIT_DIR"
. .venv/bin/activate
export RAY_USAGE_STATS_ENABLED=0
# How long the first node waits for the others.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300

head="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
exec srun ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" \
  --num-cpus "$SLURM_CPUS_PER_TASK" -- heavydistill generate --ray auto "$@"
