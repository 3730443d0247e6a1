#!/bin/bash
# Outputs of attempts. Goes after common.sh, which has what all operations use.
# shellcheck disable=SC2154 # base and the like are set there

# output RUN N REL: the mode, number of names, owner and size of a declared output, and who the gateway is there.
op_output() {
  local parent=$1/a$2/${3%/*} name=${3##*/} is
  enter "$parent" || missed "$parent" 80 81
  ls -f 2>/dev/null >/dev/null || fail 82 "its folder cannot be read"
  is=$(kind "$name") || fail 75 "$name cannot be examined"
  [[ $is != none ]] || fail 80 "does not exist"
  [[ $is != 'symbolic link' ]] || fail 81 "is a symlink"
  [[ $is != regular* || -r $name ]] || fail 82 "cannot be read"
  stat -c "%f %h %u %s $EUID" -- "$name" || fail 75 "$name cannot be examined"
}

# list RUN N SECONDS: the folders below out/, then those that cannot be read, then every entry, each after its size and a tab. Each part
# ends with an empty name; a status above 1 at the end says that the walk was cut short.
op_list() {
  local all name status is
  attempt "$1/a$2"
  is=$(kind out) || fail 75 "out cannot be examined"
  if [[ $is == none ]]; then printf "\0\0\0%d\0" 0; return; fi
  if [[ $is != directory ]]; then printf "\0out\0\0\0%d\0" 0; return; fi
  mapfile -d '' -t all < <(timeout "$3" du -0 -l -- out 2>/dev/null | head -c 2097152)
  ((${#all[@]} == 0)) || printf '%s\0' "${all[@]#*$'\t'}"
  printf '\0'
  for name in "${all[@]}"; do
    name=${name#*$'\t'}
    [[ -r $name && -x $name || ! -d $name ]] || printf '%s\0' "$name"
  done
  printf '\0'
  timeout "$3" du -a -0 -l -- out 2>/dev/null | head -c 8388608
  status=${PIPESTATUS[0]}
  printf '\0%d\0' "$status"
}
