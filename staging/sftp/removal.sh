#!/bin/bash
# The size of runs, and their removal. Goes after common.sh, which has what all operations use.
# shellcheck disable=SC2154 # base and the like are set there

# bytes NAME: of all files at and below a name. du of older coreutils counts folders too.
bytes() {
  local all own name folders=() of=() total
  is=$(kind "$1") || fail 75 "$1 cannot be examined"
  [[ $is != none ]] || { echo 0; return; }
  all=$(du -s -l --apparent-size -B1 -- "./$1" 2>/dev/null)
  total=${all%%[!0-9]*}
  if [[ $is == directory ]]; then
    own=$(du -s --apparent-size -B1 --exclude="./$1/*" -- "./$1" 2>/dev/null)
    if ((${own%%[!0-9]*} > 0)); then
      mapfile -d '' -t folders < <(du -0 -l -- "./$1" 2>/dev/null)
      for name in "${folders[@]}"; do
        of+=("${name#*$'\t'}")
        ((${#of[@]} < 500)) || { total=$((total - $(own "${of[@]}"))); of=(); }
      done
      ((${#of[@]} == 0)) || total=$((total - $(own "${of[@]}")))
    fi
  fi
  echo $((total > 0 ? total : 0))
}
own() { stat -c %s -- "$@" 2>/dev/null | { sum=0; while read -r n; do sum=$((sum + n)); done; echo "$sum"; }; }

# isattempt NAME: is it the name of an attempt's folder.
isattempt() { [[ $1 =~ ^a[1-9][0-9]*$ ]]; }
gone() { [[ $(kind "$1") == regular* && $(text "$1") == "slurmgate-removed 1 token=$2" ]]; }

# size RUN
op_size() { bytes "$1"; }

# examine RUN {N TOKEN VOID}…: everything with an attempt's name is one of these.
op_examine() {
  local run=$1 name
  shift
  declare -A token=()
  while (($# > 0)); do token[a$1]=$2; shift 3; done
  ours "$run"
  ls -f >/dev/null || fail 75 "the run's folder cannot be listed"
  for name in *; do
    isattempt "$name" || continue
    [[ -n ${token[$name]-} ]] || fail 74 "the ledger does not know attempt $name"
    gone "$name" "${token[$name]}" || carries "$name" "${token[$name]}" || true
  done
}

# remove RUN {N TOKEN VOID}…: puts a file in the place of each attempt's folder and removes the rest. Shows how many bytes that freed.
op_remove() {
  local run=$1 name freed=0 left i
  op_examine "$@"
  shift
  for ((i = 1; i < $#; i += 3)); do # what the job left may fill the disk: it makes room for what is written below
    left=$(empty "$run" "a${*:i:1}" "${*:i+2:1}") && freed=$((freed + left))
  done
  while (($# > 0)); do
    enter "$run" || fail 75 "$run cannot be entered"
    gone "a$1" "$2" || retire "$run" "a$1" "$2" "$3"
    shift 3
  done
  enter "$run" || fail 75 "$run cannot be entered"
  for name in *; do
    isattempt "$name" && continue
    is=$(bytes "$name") || exit
    freed=$((freed + is))
    clear "$name"
  done
  durable .
  echo "$freed"
}
# disarm RUN NAME VOID: no job executes an attempt, if it has a folder: its claim is taken, and nothing is pinned.
disarm() {
  local is
  is=$(kind "$2/ctl") || fail 75 "$2 cannot be examined"
  [[ $is == directory ]] && enter "$1/$2/ctl" || return 0
  if [[ $(kind claim) == none ]]; then
    new .claim.gateway
    printf '%s\n' "$3" >"$fresh" && durable "$fresh" && ln -PT -- "$fresh" claim 2>/dev/null
  fi
  rm -f -- pinned.sha256
  durable .
  enter "$1" || fail 75 "$1 cannot be entered"
}
# empty RUN NAME VOID: removes what an attempt's folder has besides what says whose it is, and shows how many bytes that were.
empty() {
  local at name freed=0
  enter "$1" || exit
  disarm "$@"
  for at in "$1/$2" "$1/$2/ctl"; do
    enter "$at" || exit
    for name in *; do
      [[ $name != @(ctl|token|claim) ]] || continue
      is=$(bytes "$name") || exit
      freed=$((freed + is))
      clear "$name"
    done
  done
  echo "$freed"
} 2>/dev/null
retire() { # RUN NAME TOKEN VOID
  local temp
  disarm "$1" "$2" "$4"
  new ".gone.$2"
  temp=$fresh
  printf 'slurmgate-removed 1 token=%s\n' "$3" >"$temp" || fail 75 "$2 cannot be replaced"
  durable "$temp"
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    new "$temp.d"
    mv -T -- "$2" "$fresh" 2>/dev/null
    # A job that starts between the two steps makes Slurm create the folder again; it holds no pinned files.
    if ln -T -- "$temp" "$2" 2>/dev/null; then
      rm -f -- "$temp"
      durable .
      return
    fi
  done
  fail 75 "$2 cannot be replaced"
}
