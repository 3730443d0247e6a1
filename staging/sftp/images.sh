#!/bin/bash
# A folder of images. Goes after common.sh, which has what all operations use.
# shellcheck disable=SC2154 # root and the like are set there

# start ARGUMENT…: goes into the folder and carries the operation out. It is no runs_dir, so it has no mark.
start() {
  local is
  is=$(kind "$root/.") || fail 70 "$root cannot be examined"
  if [[ $is == none ]]; then
    [[ $operation != check && $operation != names ]] || fail 72 "$root does not exist"
    (umask 022 && mkdir -p -- "$root") || fail 75 "$root cannot be made"
  fi
  cd -P -- "$root" 2>/dev/null || fail 70 "$root cannot be entered"
  "op_$operation" "$@"
}

# state NAME: inode, size, and times of the last changes. The owner of a file cannot set the last one back.
state() { stat -c '%i:%s:%.9Y:%.9Z' -- "$1"; }

# check NAME KNOWN: the state and the checksum of a file, or "same" where its state is the known one. "-" is the state of a file that changed
# while it was read, or so shortly before that a further change would not show.
op_check() {
  local is before after sum now changed
  is=$(kind "$1") || fail 75 "$1 cannot be examined"
  case $is in none) fail 72 "there is no $1" ;; regular*) ;; *) fail 73 "$1 is a $is" ;; esac
  before=$(state "$1") || fail 75 "$1 cannot be examined"
  if [[ $before == "$2" ]]; then echo same; return; fi
  now=$(date +%s)
  sum=$(checksum "$1") || fail 75 "$1 cannot be read"
  [[ ${#sum} == 64 ]] || fail 75 "$1 cannot be read"
  after=$(state "$1") || fail 75 "$1 cannot be examined"
  changed=${before##*:}
  [[ $before == "$after" && $((now - ${changed%.*})) -ge 2 ]] || before=-
  echo "$before $sum"
}

# prepare SECONDS: the folder is there, and nothing of sends that nobody has continued for so long.
op_prepare() {
  local left now
  now=$(date +%s)
  for left in .adding-* .put-*; do
    (($(stat -c %Y -- "$left" 2>/dev/null || echo "$now") > now - $1)) || rm -f -- "$left"
  done
}

# place TEMP NAME SIZE SHA256: gives a file that came whole its name, read-only for everyone.
op_place() {
  local is
  is=$(kind "$1") || fail 75 "$1 cannot be examined"
  [[ $is != regular* ]] || is=$(stat -c '%h %s' -- "$1") || fail 75 "$1 cannot be examined"
  [[ $is == "1 $3" ]] || fail 75 "$2 came incomplete: $is instead of $3 bytes"
  [[ $(checksum "$1") == "$4" ]] || fail 75 "$2 came with other bytes than were sent"
  chmod 444 -- "$1" || fail 75 "$2 cannot be made read-only"
  durable "$1"
  mv -fT -- "$1" "$2" || fail 75 "$2 cannot be put in its place"
  durable .
}

# names: the size and the name of each image.
op_names() {
  local name
  for name in *.sif; do
    [[ -f $name && ! -L $name ]] && stat -c '%s %n' -- "$name" 2>/dev/null
  done
  echo end
}
