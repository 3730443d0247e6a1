#!/bin/sh
# shellcheck disable=SC2016,SC2086
# What the gateway does on a login node: far.sh VERB FILES …. FILES decide which cluster Slurm's commands talk to, one on each line.
# /bin/sh may be dash, bash, ksh or busybox; nothing is used but coreutils and, where it is there, setsid.
verb=$1 files=$2
shift 2

state() (
  IFS='
'
  set -f
  stat -L -c '%n %d %i %s %y' -- $files 2>&1
)

# moved WANTED: another state than the one that the cluster was checked with.
moved() { [ -n "$1" ] && [ "$(state)" != "$1" ]; }

# born PID: when a process that has not ended was started, in ticks of the kernel since it was booted. (proc(5), stat: field 22)
born() (
  s=$(cat "/proc/$1/stat" 2>/dev/null) || exit
  set -f
  set -- ${s##*) }
  [ "$1" = Z ] || echo "${20}"
)

# here: this login node, until it is booted again.
here() { echo "$(uname -n) $(cat /proc/sys/kernel/random/boot_id) $(readlink /proc/self/ns/pid)"; }

plain() { [ -f "$1" ] && [ ! -L "$1" ] && [ -r "$1" ]; }

# report AT: what the send with the files AT.* has left. The first line says it; what sbatch printed follows on the same streams.
#   end STATUS      sbatch has ended
#   running PID HOST    it has not
#   gone            its process has ended, and nobody knows how
#   elsewhere AGE   it was started on another login node, AGE seconds ago
#   none            nothing was started
report() {
  if plain "$1.end"; then
    if ! plain "$1.out" || ! plain "$1.err"; then
      echo gone
      return
    fi
    read -r status <"$1.end"
    echo "end $status"
    head -c 262145 "$1.out"
    head -c 262145 "$1.err" >&2
  elif ! [ -e "$1.out" ]; then
    echo none
  else
    host='' born=''
    if plain "$1.by"; then read -r host boot space pid born <"$1.by"; fi
    if [ -z "$born" ] || [ "$host $boot $space" != "$(here)" ]; then
      echo "elsewhere $(($(date +%s) - $(stat -c %Y "$1.out")))"
    elif [ "$(born "$pid")" = "$born" ]; then
      echo "running $pid $host"
    elif plain "$1.end"; then
      report "$1"
    else
      echo gone
    fi
  fi
}

case $verb in
state) state ;;
ask) # STATE SECONDS [NAME=VALUE]… PROGRAM ARGUMENT…
  if moved "$1"; then exit 198; fi
  seconds=$2
  shift 2
  exec timeout -k 5 "$seconds" env -i "HOME=$HOME" "$@"
  ;;
receipt) report "$1" ;; # AT
send) # STATE AT [NAME=VALUE]… PROGRAM ARGUMENT…
  checked=$1 at=$2
  shift 2
  if moved "$checked"; then exit 198; fi
  umask 077
  if [ -e "$at.out" ] || [ -L "$at.out" ]; then
    report "$at"
    exit
  fi
  # Both files are made exclusively, so that of two sends of one number one starts nothing.
  if ! why=$( (set -C; : >"$at.out") 2>&1); then
    if [ -e "$at.out" ]; then report "$at"; else printf 'unwritable\n%s' "$why"; fi
    exit
  fi
  if ! why=$( (set -C; : >"$at.err") 2>&1); then
    printf 'unwritable\n%s' "$why"
    exit
  fi
  cd /
  setsid=
  if command -v setsid >/dev/null 2>&1; then setsid=setsid; fi
  # A process of its own, which neither the end of this session nor that of the connection ends. It leaves AT.end last.
  $setsid /bin/sh -c '
    at=$1 here=$2
    shift 2
    trap "" HUP
    umask 077
    { s=$(cat "/proc/$$/stat"); born=$(set -f; set -- ${s##*) }; echo "${20}"); echo "$here $$ $born" >"$at.by"; } 2>/dev/null
    env -i "HOME=$HOME" "$@"
    echo "$?" >"$at.end.new" && mv -f "$at.end.new" "$at.end"
  ' sh "$at" "$(here)" "$@" </dev/null >>"$at.out" 2>>"$at.err" &
  wait "$!"
  report "$at"
  ;;
esac
