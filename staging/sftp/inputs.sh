#!/bin/bash
# Inputs of runs. Goes after common.sh, which has what all operations use.
# shellcheck disable=SC2154 # base and the like are set there

several=256 # files are given to one process

# stage RUN DIRS DIR… FILES {TEMP DEST SIZE SHA256}…: leaves in in/ only what belongs there, and in .stage only what a cut left of these
# files. Says of each file: have, it is in place; sent, all of it is in .stage; need.
op_stage() {
  local run=$1 all i next missing=0 temp dest is
  declare -gA folder=() file=()
  local -A temps=()
  split "$@"
  all=${#parts[@]}
  for dest in "${folders[@]}"; do folder[$dest]=1; done
  for ((i = 0; i < all; i += 4)); do temps[${parts[i]}]=1 file[${parts[i + 1]}]=1; done
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
  for dest in "${folders[@]}"; do # parents first
    [[ $dest == */* ]] && temp=$run/${dest%/*} || temp=$run
    enter "$temp" || fail 75 "$temp cannot be entered"
    ours "${dest##*/}"
  done
  states=()
  checksums </dev/null >/dev/null # finds out by what
  for ((i = 0; i < all; i = next)); do # at once what is in one folder
    dest=${parts[i + 1]%/*}
    for ((next = i + 4; next < all && next < i + 4 * several; next += 4)); do [[ ${parts[next + 1]%/*} == "$dest" ]] || break; done
    enter "$run/$dest" || fail 73 "$dest is not a folder of the gateway's"
    there "$i" "$next"
    if enter "$run/.stage"; then
      plain 0 "$i" "$next"
      for is in "${found[@]}"; do : "${states[is / 4]:=sent}"; done
    fi
  done
  for ((i = 0; i < all; i += 4)); do
    echo "${states[i / 4]-need}"
    [[ ${states[i / 4]-} == have ]] || missing=1
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
split() { # RUN DIRS DIR… FILES …: sets folders and parts. There may be 200,000 files: shift and ${@:n:1} would look at all that is left each time
  local list=("$@")
  folders=("${list[@]:2:$2}") parts=("${list[@]:3 + $2}")
}
plain() { # FIELD FROM TO: sets found to those of these numbers whose name in parts is a file in this folder: plain, ours alone, of the right size
  local i name at=() names=() lines
  found=() modes=()
  for ((i = $2; i < $3; i += 4)); do
    name=${parts[i + $1]##*/}
    [[ -f $name && ! -L $name ]] && at+=("$i") && names+=("./$name")
  done
  ((${#at[@]} > 0)) || return 0
  mapfile -t lines < <(stat -c '%h %u %s %a' -- "${names[@]}")
  ((${#lines[@]} == ${#at[@]})) || return 0 # one went just now
  for i in "${!at[@]}"; do
    [[ ${lines[i]} != "1 $EUID ${parts[at[i] + 2]} "* ]] || { found+=("${at[i]}") && modes+=("${lines[i]##* }"); }
  done
}
there() { # FROM TO: notes which of these files, all of this folder, an earlier call staged
  local i names=() sums right=() loose=()
  plain 1 "$1" "$2"
  ((${#found[@]} > 0)) || return 0
  for i in "${found[@]}"; do names+=("./${parts[i + 1]##*/}"); done
  mapfile -t sums < <(checksums "${names[@]}")
  ((${#sums[@]} == ${#names[@]})) || return 0
  for i in "${!found[@]}"; do
    [[ ${sums[i]} == "${parts[found[i] + 3]}"* ]] || continue
    states[found[i] / 4]=have && right+=("${names[i]}")
    [[ ${modes[i]} == 400 ]] || loose+=("${names[i]}")
  done
  ((${#right[@]} > 0)) || return 0
  ((${#loose[@]} == 0)) || chmod 400 -- "${loose[@]}" || fail 75 "the inputs cannot be made read-only"
  durable "${right[@]}"
}
prune() { # REL: removes everything in this folder of the run that is neither a file nor a folder of the plan
  local name is
  enter "$run/$1" || fail 73 "$1 is not a folder of the gateway's"
  for name in *; do
    [[ -L $name || ! -f $name || -z ${file[$1/$name]-} ]] || continue
    is=$(kind "$name") || fail 75 "$1/$name cannot be examined"
    if [[ $is == directory && -n ${folder[$1/$name]-} ]]; then
      prune "$1/$name"
      enter "$run/$1" || fail 73 "$1 is not a folder of the gateway's"
    else
      clear "$name"
    fi
  done
}
settle() { # RUN: makes the names in in/ durable
  local i
  enter "$1" || fail 75 "$1 cannot be entered"
  for ((i = 0; i < ${#folders[@]}; i += several)); do durable "${folders[@]:i:several}"; done
}

# place RUN DIRS DIR… FILES {TEMP DEST SIZE SHA256}…: gives files that came to .stage their names. Many files come in several calls, of which
# the last has the folders.
op_place() {
  local run=$1 i dest into=''
  split "$@"
  for ((i = 0; i < ${#parts[@]}; i += 4 * several)); do
    enter "$run/.stage" || missed "$run/.stage" 75 73
    came "$i" $((i + 4 * several < ${#parts[@]} ? i + 4 * several : ${#parts[@]}))
  done
  for ((i = 0; i < ${#parts[@]}; i += 4)); do
    dest=${parts[i + 1]}
    [[ ${dest%/*} == "$into" ]] || { into=${dest%/*} && enter "$run/$into"; } || fail 73 "$into is not a folder of the gateway's"
    mv -fT -- "$base/$run/.stage/${parts[i]}" "${dest##*/}" || fail 75 "$dest cannot be put in its place"
  done
  ((${#folders[@]} > 0)) || return 0
  enter "$run" || fail 75 "$run cannot be entered"
  clear .stage
  settle "$run"
}
came() { # FROM TO: the end, unless all of these files are in .stage with their bytes
  local i k temp=() seen sums
  for ((i = $1; i < $2; i += 4)); do temp+=("./${parts[i]}"); done
  mapfile -t seen < <(stat -c '%h %s %F' -- "${temp[@]}")
  mapfile -t sums < <(checksums "${temp[@]}")
  for ((i = $1, k = 0; i < $2; i += 4, k++)); do
    [[ ${seen[k]-} == "1 ${parts[i + 2]} regular"* ]] || fail 75 "${parts[i + 1]} came incomplete: ${seen[k]-nothing}"
    [[ ${sums[k]-} == "${parts[i + 3]}"* ]] && continue
    clear "${temp[k]#./}" # the next try begins at the first byte
    fail 75 "${parts[i + 1]} came with other bytes than were sent"
  done
  chmod 400 -- "${temp[@]}" || fail 75 "the inputs cannot be made read-only"
  ((${#temp[@]} < 64)) || sync -f . 2>/dev/null # many files reach the disk together, and durable has little left to do
  durable "${temp[@]}"
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
