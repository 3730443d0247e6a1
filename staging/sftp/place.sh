#!/bin/bash
# Files that stay where they are, hashed and looked at where they lie. Exit codes: 3 there is no such file, 4 a link is on the way, 5 no regular
# file or folder, 6 it cannot be read, 7 it changed while it was read, 8 something in it cannot be in a directory artifact (printed), 9 too many files.
#
#   hash ROOT PATH              prints the SHA-256 of a file below ROOT, and its state
#   tree ROOT PATH FILES DEPTH  prints the SHA-256, size and path of each file in a folder below ROOT, by path, and then the folder's state
#   from N STATE OP ROOT …      the same, without the first N files, if the file or folder has that state; says on the way how far it is
#   look ROOT PATH              prints the state of a file or folder below ROOT, and about how many bytes it has
#   job STATE OP ROOT PATH …    what hash or tree prints, if the file or folder has that state
#   states PATH…                prints the state of each file or folder, or a line that begins with "stat: " or "bash: ", or "exposed " and a
#                               folder on the way in which another user than root and this one can put something else in the place of what follows
set -u
export LC_ALL=C PATH=/usr/bin:/bin

hash=(openssl dgst -sha256 -r) && "${hash[@]}" </dev/null >/dev/null 2>&1 || hash=(sha256sum)
state() {
  if [[ -d $1 ]]; then
    echo "tree $( (cd -- "$1" && find . -print0 | sort -z | xargs -0 -r stat -c '%f %i %s %.Y %.Z %n') 2>&1 | "${hash[@]}" | head -c 64)"
  else
    stat -L -c '%i %s %.Y %.Z' /dev/stdin <"$1" # inode, size, mtime, ctime of the file that was opened
  fi
}
below() { # ROOT PATH: no link is on the way
  local root path=$2
  root=$(realpath -e -- "$1") || exit 3
  [[ -e $path || -L $path ]] || exit 3
  [[ $(realpath -e -- "$path") == "$root/${path#"$1"/}" ]] || exit 4
}
settle() { # PATH: all that was written to it is on the disk. Only from then on does a write through a mapped page change its times
  if [[ -d $1 ]]; then sync -f -- "$1"; else sync -- "$1"; fi 2>/dev/null
  return 0 # a filesystem that cannot sync cannot be written to
}
told='' skip=0
op_hash() {
  local path=$2 before sum='' after in out at
  below "$1" "$path"
  [[ -f $path ]] || exit 5
  [[ -r $path ]] || exit 6
  settle "$path"
  before=$(state "$path") && exec {in}<"$path" || exit 6
  exec {out}< <(exec "${hash[@]}" <&"$in")
  until read -r -t 1 -u "$out" sum; do
    (($? > 128)) || exit 6 # else a second went by; the two share the position in the file
    [[ -z $told ]] || { read -r _ at <"/proc/$$/fdinfo/$in" && printf 'at %s\n' "$at"; }
  done
  after=$(state "$path") || exit 6
  sum=${sum:0:64}
  [[ $before == "$after" && ${#sum} == 64 ]] || exit 7
  printf '%s\n%s\n' "$sum" "$after"
}
op_tree() {
  local path=$2 most=$3 depth=$4 before odd list files sums i j n bytes
  below "$1" "$path"
  [[ -d $path ]] || exit 5
  settle "$path"
  before=$(state "$path") && cd -- "$path" || exit 6
  odd=$(find . -mindepth 1 \( -name '*[[:cntrl:]\]*' -o ! -type f ! -type d \) -print -quit && find . -mindepth "$depth" ! -type f -print -quit) || exit 6
  [[ -z $odd ]] || { printf '%q\n' "$odd"; exit 8; }
  [[ -z $(find . ! -readable -print -quit) ]] || exit 6
  mapfile -t list < <(find . -type f -printf '%P\t%s\n' | sort | head -n $((most + 1)))
  ((${#list[@]} <= most)) || exit 9
  for ((i = skip; i < ${#list[@]}; i += n)); do # one process hashes 256 files, or a gibibyte
    for ((n = bytes = 0; n < 256 && i + n < ${#list[@]} && bytes < 1 << 30; n++)); do bytes=$((bytes + ${list[i + n]##*$'\t'})); done
    files=("${list[@]:i:n}") && files=("${files[@]%$'\t'*}")
    mapfile -t sums < <("${hash[@]}" "${files[@]/#/./}")
    for j in "${!files[@]}"; do
      [[ ${sums[j]-} =~ ^[0-9a-f]{64}' ' ]] || exit 6
      printf '%s %s %s\n' "${sums[j]:0:64}" "${list[i + j]##*$'\t'}" "${files[j]}"
    done
  done
  [[ $(state "$path") == "$before" ]] || exit 7
  printf '%s\n' "$before"
}
op_from() {
  told=yes skip=$1
  op_job "${@:2}"
}
op_look() {
  local path=$2 is bytes
  below "$1" "$path"
  [[ -f $path || -d $path ]] || exit 5
  settle "$path"
  [[ -r $path ]] && is=$(state "$path") && bytes=$(du -sb -- "$path") || exit 6
  printf '%s\n%s\n' "$is" "${bytes%%[!0-9]*}"
}
op_job() {
  below "$3" "$4"
  [[ $(state "$4") == "$1" ]] || exit 7
  "op_$2" "${@:3}"
}
exposed() { # PATH
  local way in it owner mode
  for way in "$1" "$(realpath -e -- "$1")"; do
    while [[ $way == /?* ]]; do
      in=${way%/*} && in=${in:-/}
      it=$(stat -c %u -- "$way") && read -r owner mode < <(stat -L -c '%u %a' -- "$in") || return
      ((owner == 0 || owner == EUID)) || break
      ((!(8#$mode & 8#022) || 8#$mode & 8#1000 && (it == 0 || it == EUID))) || break
      way=$in
    done
    [[ $way != /?* ]] || { printf 'exposed %s' "$in"; return; }
  done
}
op_states() {
  local path is
  for path; do
    is=$(exposed "$path" 2>/dev/null)
    [[ -n $is ]] || is=$(state "$path" 2>&1)
    printf '%s\n' "${is//$'\n'/ }"
  done
}
"op_$1" "${@:2}"
