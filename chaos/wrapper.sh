#!/bin/bash
# Stands in for one of Slurm's commands: the real one, unless a flag file says how to misbehave. Line of the flag file:
# mode, argument, and how many calls it holds for (empty: as long as the file is there).
flags=@FLAGS@
name=${0##*/} real=/usr/bin/${0##*/} mode='' arg='' calls=''
read -r mode arg calls 2>/dev/null <"$flags/$name" || [[ -n $mode ]] || exec "$real" "$@"
if [[ -n $calls ]]; then
  n=0
  while ! mkdir "$flags/$name.call.$n" 2>/dev/null; do ((n += 1)); done
  ((n < calls)) || exec "$real" "$@"
fi
case $name.$mode in
sbatch.nothing) # fails before it submits, with words nobody knows
  echo "sbatch: error: something went wrong" >&2
  exit 1
  ;;
sbatch.unreachable) # never left: Slurm's own words for it
  echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)" >&2
  exit 1
  ;;
sbatch.lost) "$real" "$@" >/dev/null 2>&1; exit "$arg" ;;
sbatch.garbage) "$real" "$@" >/dev/null 2>&1; printf 'Welcome to the cluster!\njob 12x;; \001\377\n'; exit "$arg" ;;
sbatch.cut) out=$("$real" "$@") && printf '%s' "${out%?}"; exit "$arg" ;;
sbatch.complain) "$real" "$@"; echo "sbatch: error: Batch job submission failed: Unspecified error" >&2; exit 1 ;;
sbatch.twolost) "$real" "$@" >/dev/null 2>&1; "$real" "$@" >/dev/null 2>&1; exit 1 ;;
sbatch.two) "$real" "$@" >/dev/null; exec "$real" "$@" ;;
sbatch.slow) sleep "$arg"; exec "$real" "$@" ;;
sbatch.linger) out=$("$real" "$@"); code=$?; sleep "$arg"; [[ -z $out ]] || printf '%s\n' "$out"; exit "$code" ;;
*.hang) # until the flag is gone
  while [[ -e $flags/$name ]]; do sleep 0.1; done
  exec "$real" "$@"
  ;;
*.stuck) exec sleep "$arg" ;; # even then
*.lie) echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 0 ;;
*.fail) echo "$name: error: Socket timed out on send/recv operation" >&2; exit 1 ;;
*.nothing) exit 0 ;;
*.hide) [[ -e $arg ]]; exit ;; # fails until the job has its claim, then shows nothing
*.half)
  out=$("$real" "$@"; printf x)
  printf '%s' "${out:0:$(((${#out} - 1) * arg / 100))}"
  exit 0
  ;;
squeue.completing) "$real" "$@" | sed 's/\x1fRUNNING\x1f/\x1fCOMPLETING\x1f/' ;;
squeue.fold) "$real" "$@" | sed -E 's/(_\[[0-9,-]*)\]/\1...]/' ;; # as if the lists of pending tasks were too long to be shown whole
squeue.strange) "$real" "$@" | sed 's/\x1fRUNNING\x1f/\x1fDREAMING\x1f/' ;;
*) exec "$real" "$@" ;;
esac
