#!/bin/bash
# A dataset by a Slurm array, a part a task, into one folder that all nodes see: sbatch slurm_array.sh CONFIG.yaml OUT.zarr
# Submitted again, it makes what is missing: parts go on where they were.
#SBATCH --job-name=jaxik-generate
#SBATCH --array=1-8
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --requeue
set -euo pipefail

# Which part, and of how many, is in SLURM_ARRAY_TASK_ID, _MIN and _COUNT.
exec jaxik generate "$1" "$2" --part auto --json
