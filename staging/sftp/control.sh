#!/bin/bash
# Attempts, their control files and claims. Goes after common.sh, which has what all operations use.
# shellcheck disable=SC2154 # base and the like are set there

# open RUN N TOKEN {NAME SIZE SHA256}…: makes the attempt's folder in one exclusive step, or rewrites the files of its own. The first
# file is the token.
op_open() {
  local run=$1 name=a$2 token=$3 temp list=()
  shift 3
  ours "$run"
  if carries "$name" "$token"; then
    enter "$run/$name/ctl" || fail 73 "$name/ctl is not a folder"
    dd bs=65536 count="$2" iflag=count_bytes,fullblock status=none of=/dev/null # the token is there
    shift 3
    rewrite "$@"
  else
    new ".$name.$token"
    temp=$fresh
    mkdir -- "$temp" "$temp/ctl" || fail 75 "$name cannot be made"
    while (($# > 0)); do
      put "$temp/ctl/$1" "$2" "$3"
      list+=("$1" "$3")
      shift 3
    done
    durable "$temp/ctl" "$temp"
    [[ $(kind "$name") == none ]] && mv -fT -- "$temp" "$name" 2>/dev/null
    # What counts is what the folder holds now: another call with the same token may have been first.
    carries "$name" "$token" || fail 75 "$name did not appear"
    clear "$temp"
    enter "$run/$name/ctl" || fail 73 "$name/ctl is not a folder"
    set -- "${list[@]}"
    while (($# > 0)); do
      [[ $(digest "./$1") == "$2" ]] || fail 75 "$1 reads back differently"
      shift 2
    done
  fi
  enter "$run" || fail 75 "$run cannot be entered"
  for temp in ".$name".*; do clear "$temp"; done # of crashed calls
  durable . "$base"
}
rewrite() {
  local temp list=() left
  for left in .tmp.*; do rm -f -- "./$left"; done # of crashed calls
  while (($# > 0)); do
    new ".tmp.$1"
    temp=$fresh
    put "$temp" "$2" "$3"
    mv -fT -- "$temp" "$1" || fail 75 "$1 cannot be put in its place"
    [[ $(digest "./$1") == "$3" ]] || fail 75 "$1 reads back differently"
    shift 3
  done
  durable .
}

# read RUN N NAME LIMIT FROM: a line that says where the bytes begin, and the bytes.
op_read() {
  attempt "$1/a$2/ctl"
  ls -f >/dev/null || fail 75 "the control folder cannot be listed"
  show "$3" "$4" "$5" 72 place
}

# claim RUN N VOID SIZE SHA256: links the content into place as the claim, unless there is one, and shows who has it. The file of the
# gateway's own claim has been there since the attempt was opened, so that a full disk does not keep it from being taken.
op_claim() {
  local mine=$3 is said
  attempt "$1/a$2/ctl"
  is=$(kind "$mine") || fail 75 "$mine cannot be examined"
  if [[ $is != 'regular file' || $(digest "./$mine") != "$5" ]]; then
    new .claim.gateway
    mine=$fresh
    put "$mine" "$4" "$5"
  fi
  said=$(ln -PT -- "$mine" claim 2>&1)
  durable .
  [[ $mine == "$3" ]] || rm -f -- "$mine"
  ls -f >/dev/null || fail 75 "the control folder cannot be listed"
  is=$(kind claim) || fail 75 "the claim cannot be examined"
  [[ $is != none ]] || fail 75 "the claim cannot be linked: $said"
  show claim 65536 0 75
}
