#!/usr/bin/env bash
# The whole story on two CPU cores, from nothing downloaded: the micro teacher's traces become sets,
# the bundled student learns from them (SFT) and then from verdicts on its own work (GRPO), and all
# four models are measured on 1,000 fresh problems.
#
#   bash scripts/reproduce_micro.sh                        # seed 1
#   for seed in 1 2 3; do SEED=$seed bash scripts/reproduce_micro.sh || break; done
#
# One seed takes under an hour from nothing, and the next ones less: the teacher's traces and the
# figures of base and teacher are made once. At the end docs/evidence/results.md has the table of all seeds
# that are there, and how long each stage took. All else is in out/reproduce; OUT=folder names
# another, which then has results.md as well. A run that was broken off goes on when the same
# command is given again.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

seed="${SEED:-1}"
[[ "$seed" =~ ^[1-9]$ ]] || fail "SEED=$seed is no digit from 1 to 9."
prepare_environment train
cd "$root"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
out="${OUT:-out/reproduce}"
mine="$out/seed-$seed"
mkdir -p "$mine"

# Whether a folder is all that it should be: a run may lack problems, and a training has its
# model's config.json last.
is_whole() {
  if [ -e "$1/summary.json" ]; then
    grep -q '"missing": 0' "$1/summary.json"
  else
    [ -e "$1/manifest.json" ] || [ -e "$1/config.json" ] || [ -e "$1/controls.json" ]
  fi
}

# once STAGE FOLDER FROM COMMAND...: runs a command whose result is not there, and says how long it
# took. FROM are the folders that it is made from, with colons between them: none may be newer.
once() {
  local stage="$1" folder="$2" from="$3" began=$SECONDS status=0 inputs=() input
  shift 3
  IFS=: read -ra inputs <<<"$from"
  if is_whole "$folder"; then
    for input in "${inputs[@]}"; do
      [ ! "$folder" -ot "$input" ] ||
        fail "$folder is older than $input, which it is made from: remove it, and start again."
    done
    return 0
  fi
  say "$stage"
  # What is made anew from nothing takes the time that it takes now; a journal remembers responses.
  [ -e "$folder" ] || [ "$1" != train ] || forget "$stage"
  "$@" || status=$?
  printf '%s\t%s\t%d\n' "$seed" "$stage" "$((SECONDS - began))" >>"$out/seconds.tsv"
  is_whole "$folder" || fail "$stage ended with $status; give the same command again to go on."
}
forget() {
  [ ! -e "$out/seconds.tsv" ] || sed -i "/^$seed\t$1\t/d" "$out/seconds.tsv"
}

generate() { "$venv/bin/heavydistill" generate --journal "$out/journal" "$@"; }
build() { "$venv/bin/heavydistill" build "$@"; }
# train SCRIPT FOLDER FLAGS...: goes on where there is a checkpoint to go on from.
train() {
  local script="$1" folder="$2" resume=()
  shift 2
  ! compgen -G "$folder/checkpoint-*/whole.json" >/dev/null || resume=(--resume_from_checkpoint true)
  "$venv/bin/accelerate" launch --config_file configs/accelerate/cpu2.yaml "$script" \
    --output_dir "$folder" --seed "$seed" "$@" "${resume[@]}"
}
# Problems of the teacher, of each seed's own work, and of the measurement do not meet.
measure() {
  "$venv/bin/heavydistill" evaluate --journal "$out/journal" --config configs/evaluate/micro8.yaml \
    --thinker "$1" --deliberator "$1" --controls garbled --out "$2"
}

# Nothing that is made below changes these two.
once "measure base" "$out/measured-base" "" measure micro-student "$out/measured-base"
once "measure teacher" "$out/measured-teacher" "" measure micro "$out/measured-teacher"

once "teacher's traces" "$out/traces" "" generate --thinker micro-student --deliberator micro \
  --k 4 --d 1 --set problems.size=4000 --set problems.seed=1000000 --out "$out/traces"
# The attempts above are the student's own; these are a teacher's, for its thinking to learn from.
once "teacher's attempts" "$out/attempts" "" generate --thinker micro --deliberator micro --k 2 --d 0 \
  --set problems.size=5000 --set problems.seed=2000000 --processes 2 --out "$out/attempts"
once "sets for SFT" "$out/sets" "$out/traces:$out/attempts" build "$out/traces" "$out/attempts" \
  --student micro-student --preset natural --out "$out/sets"
once "SFT" "$mine/sft" "$out/sets" train scripts/sft.py "$mine/sft" --config configs/sft/micro.yaml \
  --role both --dataset_name "$out/sets" --num_train_epochs 1.5
once "own work" "$mine/own" "$mine/sft" generate --config configs/evaluate/micro.yaml \
  --thinker "$mine/sft" --deliberator "$mine/sft" --d 0 --set problems.size=2400 \
  --set "problems.seed=$((3000000 + 10000 * seed))" --out "$mine/own"
once "sets for GRPO" "$mine/own-sets" "$mine/own" build "$mine/own" --student "$mine/sft" --preset natural \
  --out "$mine/own-sets"
once "GRPO" "$mine/grpo" "$mine/own-sets" train scripts/grpo.py "$mine/grpo" \
  --config configs/grpo/micro/deliberator.yaml --model_name_or_path "$mine/sft" \
  --dataset_name "$mine/own-sets" --unmeasured ask --max_accuracy 0.75

once "measure SFT" "$mine/measured-sft" "$mine/sft" measure "$mine/sft" "$mine/measured-sft"
once "measure GRPO" "$mine/measured-grpo" "$mine/grpo" measure "$mine/grpo" "$mine/measured-grpo"

results="${OUT:+$out/results.md}"
results="${results:-docs/evidence/results.md}"
"$venv/bin/python" scripts/results_micro.py "$out" --write "$results"
say "the table: $results"
