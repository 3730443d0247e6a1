#!/bin/bash
# Inputs of runs. Goes after common.sh, which has what all operations use.
# shellcheck disable=SC2154 # base and the like are set there

# stage RUN DIRS DIR… FILES {TEMP DEST SIZE SHA256}…: leaves in in/ only what belongs there, and in .stage only what a cut left of these
# files. Says of each file: have, it is in place; sent, all of it is in .stage; need.
op_stage() {
  local run=$1 n=$2 temp dest missing=0 i is
  shift 2
  declare -gA folder=() file=()
  local -A temps=()
  for ((; n > 0; n--)); do folder[$1]=1; shift; done
  shift
  for ((i = 1; i < $#; i += 4)); do
    temp=${!i} dest=${*:i+1:1}
    temps[$temp]=1 file[$dest]=1
  done
  ours "$run"
  is=$(kind .stage) || fail 75 ".stage cannot be examined"
  if [[ $is == directory ]]; then
    ours .stage
    for temp in *; do # .put-… is a part of a file: package transfer verifies it, or begins anew
      [[ -f $temp && ! -L $temp && (-n ${temps[$temp]-} || $temp =~ ^\.put-[0-9a-f]{32}(\.at)?$) ]] || clear "$temp"
    done
    enter "$run" || fail 75 "$run cannot be entered"
  else
    clear .stage
  fi
  is=$(kind in) || fail 75 "in cannot be examined"
  [[ $is != directory ]] || prune in
  [[ $is == directory || $is == none ]] || clear in
  for dest in "${!folder[@]}"; do parents "$run" "$dest"; done
  while (($# > 0)); do
    enter "$run/${2%/*}" || fail 73 "${2%/*} is not a folder of the gateway's"
    if there "${2##*/}" "$3" "$4"; then
      echo have
    else
      missing=1
      if enter "$run/.stage" && [[ -f $1 && ! -L $1 && $(stat -c '%h %u %s' -- "$1") == "1 $EUID $3" ]]; then echo sent; else echo need; fi
    fi
    shift 4
  done
  enter "$run" || fail 75 "$run cannot be entered"
  if ((missing)); then
    ours .stage
  else
    clear .stage
    settle "$run"
  fi
  echo end
}
parents() { # RUN REL: makes every folder of a path and enters the last
  local part parts
  enter "$1" || fail 75 "$1 cannot be entered"
  IFS=/ read -ra parts <<<"$2"
  for part in "${parts[@]}"; do ours "$part"; done
}
prune() { # REL: removes everything in this folder of the run that is neither a file nor a folder of the plan
  local name is
  enter "$run/$1" || fail 73 "$1 is not a folder of the gateway's"
  for name in *; do
    is=$(kind "$name") || fail 75 "$1/$name cannot be examined"
    if [[ $is == directory && -n ${folder[$1/$name]-} ]]; then
      prune "$1/$name"
      enter "$run/$1" || fail 73 "$1 is not a folder of the gateway's"
    elif [[ $is != regular* || -z ${file[$1/$name]-} ]]; then
      clear "$name"
    fi
  done
}
there() { # NAME SIZE SHA256: an earlier call staged it
  local is
  [[ -f $1 && ! -L $1 ]] || return
  is=$(stat -c '%h %u %s' -- "$1") && [[ $is == "1 $EUID $2" && $(checksum "./$1") == "$3" ]] || return
  chmod 400 -- "./$1" && durable "./$1"
}
settle() { # RUN: makes the names in in/ durable
  local dest list=()
  enter "$1" || fail 75 "$1 cannot be entered"
  for dest in "${!folder[@]}"; do list+=("./$dest"); done
  durable "${list[@]}"
}

# place RUN DIRS DIR… FILES {TEMP DEST SIZE SHA256}…: gives the files that came to .stage their names.
op_place() {
  local run=$1 n=$2 i temp=() parts seen sums
  shift 2
  declare -gA folder=()
  for ((; n > 0; n--)); do folder[$1]=1; shift; done
  shift
  parts=("$@")
  enter "$run/.stage" || missed "$run/.stage" 75 73
  for ((i = 0; i < ${#parts[@]}; i += 4)); do temp+=("./${parts[i]}"); done
  mapfile -t seen < <(stat -c '%h %s %F' -- "${temp[@]}")
  mapfile -t sums < <(checksums "${temp[@]}")
  for ((i = 0; i < ${#temp[@]}; i++)); do
    [[ ${seen[i]-} == "1 ${parts[4 * i + 2]} regular"* ]] || fail 75 "${parts[4 * i + 1]} came incomplete: ${seen[i]-nothing}"
    [[ ${sums[i]-} == "${parts[4 * i + 3]}"* ]] && continue
    clear "${temp[i]#./}" # the next try begins at the first byte
    fail 75 "${parts[4 * i + 1]} came with other bytes than were sent"
  done
  chmod 400 -- "${temp[@]}" || fail 75 "the inputs cannot be made read-only"
  durable "${temp[@]}"
  set -- "${parts[@]}"
  while (($# > 0)); do
    enter "$run/${2%/*}" || fail 73 "${2%/*} is not a folder of the gateway's"
    mv -fT -- "$base/$run/.stage/$1" "${2##*/}" || fail 75 "$2 cannot be put in its place"
    shift 4
  done
  enter "$run" || fail 75 "$run cannot be entered"
  clear .stage
  settle "$run"
}

# sweep SECONDS: removes the parts of inputs that nobody has continued for so long.
op_sweep() {
  local stage part at now
  now=$(date +%s)
  for stage in run_*/.stage; do
    enter "$stage" || continue
    for part in .put-*; do
      [[ -f $part && ! -L $part ]] && at=$(stat -c %Y -- "$part") && ((at < now - $1)) && rm -f -- "./$part"
    done
  done
  echo end
}
