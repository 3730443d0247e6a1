#!/bin/bash
# Files that stay where they are, hashed and looked at where they lie. Exit codes: 3 there is no such file, 4 a link is on the way, 5 no regular
# file, 6 it cannot be read, 7 it changed while it was read.
#
#   hash ROOT PATH   prints the SHA-256 of a file below ROOT, and its state
#   states PATH…     prints the state of each file, or a line that begins with "stat: " or "bash: "
set -u
export LC_ALL=C PATH=/usr/bin:/bin

state() { stat -L -c '%i %s %.Y %.Z' /dev/stdin <"$1"; } # inode, size, mtime, ctime of the file that was opened
op_hash() {
  local root path=$2 before sum after
  root=$(realpath -e -- "$1") || exit 3
  [[ -e $path || -L $path ]] || exit 3
  [[ $(realpath -e -- "$path") == "$root/${path#"$1"/}" ]] || exit 4
  [[ -f $path ]] || exit 5
  [[ -r $path ]] || exit 6
  hash=(openssl dgst -sha256 -r) && "${hash[@]}" </dev/null >/dev/null 2>&1 || hash=(sha256sum)
  before=$(state "$path") && sum=$("${hash[@]}" <"$path" | head -c 64) && after=$(state "$path") || exit 6
  [[ $before == "$after" && ${#sum} == 64 ]] || exit 7
  printf '%s\n%s\n' "$sum" "$after"
}
op_states() {
  local path is
  for path; do
    is=$(state "$path" 2>&1)
    printf '%s\n' "${is//$'\n'/ }"
  done
}
"op_$1" "${@:2}"
