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

# outputs RUN N REL…: as output, a line for each. 83 where that is not all there is to say: they are then asked for one by one.
op_outputs() {
  local list=("${@:3}") i next names lines
  for ((i = 0; i < ${#list[@]}; i = next)); do # at once what is in one folder
    names=()
    for ((next = i; next < ${#list[@]}; next++)); do
      [[ ${list[next]%/*} == "${list[i]%/*}" ]] || break
      names+=("./${list[next]##*/}")
      [[ next -gt i ]] || enter "$1/a$2/${list[i]%/*}" || fail 83 "${list[i]%/*} cannot be entered"
      [[ -r ${names[-1]} ]] || fail 83 "${list[next]} cannot be read"
    done
    mapfile -t lines < <(stat -c "%f %h %u %s $EUID" -- "${names[@]}")
    ((${#lines[@]} == ${#names[@]})) || fail 83 "a file went"
    printf '%s\n' "${lines[@]}"
  done
}

# list RUN N SECONDS DECLARED…: the folders below out/, then those that cannot be read, then every entry, each after its size and a tab.
# Each part ends with an empty name; a status above 1 at the end says that the walk was cut short. What is declared is left out, with all
# that is in it; each path begins with ./, which makes a pattern for du match that path alone.
op_list() {
  local all name status is declared=("${@:4}") walk
  attempt "$1/a$2"
  is=$(kind out) || fail 75 "out cannot be examined"
  if [[ $is == none ]]; then printf "\0\0\0%d\0" 0; return; fi
  if [[ $is != directory ]]; then printf "\0out\0\0\0%d\0" 0; return; fi
  declared=("${declared[@]//\*/\\*}") declared=("${declared[@]//\?/\\?}") declared=("${declared[@]//\[/\\[}")
  declared=("${declared[@]/#/./}") walk=(timeout "$3" du -0 -l -X /dev/stdin)
  mapfile -d '' -t all < <(printf '%s\n' "${declared[@]}" | "${walk[@]}" -- ./out 2>/dev/null | head -c 2097152)
  ((${#all[@]} == 0)) || printf '%s\0' "${all[@]#*$'\t'}"
  printf '\0'
  for name in "${all[@]}"; do
    name=${name#*$'\t'}
    [[ -r $name && -x $name || ! -d $name ]] || printf '%s\0' "$name"
  done
  printf '\0'
  printf '%s\n' "${declared[@]}" | "${walk[@]}" -a -- ./out 2>/dev/null | head -c 8388608
  status=${PIPESTATUS[1]}
  printf '\0%d\0' "$status"
}
