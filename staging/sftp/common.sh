#!/bin/bash
# What the gateway does with workspaces on the far side, with bash and coreutils alone: the constant script of package staging/sftp.
#
#   far.sh RUNS_DIR GATEWAY_ID NONCE OPERATION ARGUMENT…
#
# Every folder is entered without following links: after cd, the kernel's own name of the working directory must be the expected one.
# After that only single names are used, on which mkdir, ln, mv and rm do not follow links. Bytes of control files come on standard input.
# Nothing is typed by people, so every argument has a form that the gateway has checked. What an operation writes is durable when it ends.
#
# Exit codes, with the reason on standard error:
#   70 runs_dir is away   71 no such attempt   72 no such control file   73 an entry that is not the gateway's
#   74 an attempt that the ledger does not know   75 the filesystem failed   76 runs_dir is not usable
#   80 the output is missing   81 it is behind a symlink   82 it cannot be read
set -u
set -o pipefail
umask 077
shopt -s nullglob dotglob
export LC_ALL=C PATH=/usr/bin:/bin

root=$1 id=$2 nonce=$3 operation=$4 made=0
shift 4

fail() { printf '%s\n' "$2" >&2; exit "$1"; }
digest() { sha256sum <"$1" | head -c 64; }
# checksums FILE…: of files that may be large, a line each; openssl is three times as fast. checksum FILE: of one.
# shellcheck disable=SC2120 # other scripts pass files
checksums() {
  [[ -n ${hash-} ]] || { hash=(openssl dgst -sha256 -r) && "${hash[@]}" </dev/null >/dev/null 2>&1 || hash=(sha256sum); }
  "${hash[@]}" "$@"
}
# shellcheck disable=SC2119 # without files it reads standard input
checksum() { checksums <"$1" | head -c 64; }
new() { fresh=$1.$nonce$((++made)); } # PREFIX: a name that nobody else uses

# kind NAME: what the entry is, in stat's words; "none" only where the filesystem says so. A filesystem that fails is never an absence.
kind() {
  local said
  if said=$(stat -c %F -- "$1" 2>&1); then
    printf '%s' "$said"
  elif [[ $said == *': No such file or directory' || $said == *': Not a directory' ]]; then
    printf none
  else
    printf '%s\n' "$said" >&2
    return 1
  fi
}

# durable NAME…: files and folders reach the disk. Some network filesystems cannot sync folders: theirs are synchronous.
durable() {
  local said line
  said=$(sync -- "$@" 2>&1 </dev/null) && return
  while IFS= read -r line; do
    [[ $line == *': Invalid argument' || $line == *': Operation not supported' ]] || fail 75 "$said"
  done <<<"$said"
}

# enter REL: goes into a folder below runs_dir, and not through a link.
enter() { cd -P -- "$base/$1" 2>/dev/null && [[ $PWD == "$base/$1" ]]; }

# missed REL CODE LINK_CODE: says why a folder could not be entered: CODE where it is not there, LINK_CODE where a link is on the way.
missed() {
  local at=$base part parts is
  IFS=/ read -ra parts <<<"$1"
  for part in "${parts[@]}"; do
    ls -f -- "$at" >/dev/null || fail 75 "$1 cannot be listed"
    at=$at/$part
    is=$(kind "$at") || fail 75 "$1 cannot be examined"
    case $is in
      directory) ;;
      'symbolic link') fail "$3" "${at#"$base/"} is a symlink" ;;
      none | regular*) fail "$2" "${at#"$base/"} is ${is/none/missing}" ;;
      *) fail 73 "${at#"$base/"} is a $is" ;;
    esac
  done
  enter "$1" || fail 75 "$1 cannot be entered"
}
attempt() { enter "$1" || missed "$1" 71 73; }

# ours NAME: makes a folder here, or takes one of ours, and enters it.
ours() {
  local rel=${PWD#"$base"} said
  rel=${rel#/}
  rel=${rel:+$rel/}$1
  said=$(mkdir -- "$1" 2>&1) || [[ $said == *': File exists' ]] || fail 75 "$said"
  enter "$rel" || missed "$rel" 73 73
  [[ -O . ]] || fail 73 "$rel belongs to another user"
  [[ $(stat -c %a .) == *700 ]] || chmod 700 . || fail 75 "$rel cannot be made private"
}

# put NAME SIZE SHA256: a new durable file with the next bytes of standard input.
put() {
  dd of="$1" bs=65536 count="$2" iflag=count_bytes,fullblock oflag=nofollow conv=excl,fsync status=none || fail 75 "$1 cannot be written"
  [[ $(digest "$1") == "$3" ]] || fail 75 "$1 came incomplete"
}

# show NAME LIMIT FROM CODE [place]: bytes of a regular file from FROM on, which counts from the end if it is negative, behind a line with
# their place; CODE where there is no file. A pipe or a link that takes its place meanwhile is not read.
show() {
  local is size skip=$3
  is=$(kind "$1") || fail 75 "$1 cannot be examined"
  case $is in none) fail "$4" "there is no $1" ;; regular*) ;; *) fail 73 "$1 is a $is" ;; esac
  if ((skip)); then
    size=$(stat -c %s -- "$1") || fail 75 "$1 cannot be examined"
    ((skip >= 0)) || skip=$((size + skip > 0 ? size + skip : 0))
    ((skip <= size)) || skip=$size
  fi
  [[ -z ${5-} ]] || printf '%s\n' "$skip"
  dd if="./$1" bs=65536 count="$2" skip="$skip" iflag=count_bytes,skip_bytes,fullblock,nofollow,nonblock status=none ||
    fail 75 "$1 cannot be read"
  is=$(kind "$1") || fail 75 "$1 cannot be examined"
  [[ $is == regular* ]] || fail 73 "$1 is a $is"
}

# text NAME: a small file of the gateway's, without its last newline; empty where there is none.
text() { [[ -f $1 && ! -L $1 ]] && head -c 4096 -- "./$1"; }

# carries NAME TOKEN: 0 the folder is this attempt's, 1 there is none; another's ends the operation.
carries() {
  local is got
  ls -f >/dev/null || fail 75 "the run's folder cannot be listed"
  is=$(kind "$1") || fail 75 "$1 cannot be examined"
  [[ $is != none ]] || return 1
  [[ $is == directory && $(kind "$1/ctl") == directory ]] && got=$(kind "$1/ctl/token") && [[ $got == regular* ]] &&
    got=$(head -c 256 -- "$1/ctl/token") && [[ $got == "$2" ]] && return
  if [[ $is == directory ]]; then # a folder that cannot be examined is no stranger's
    for got in "$1/ctl" "$1/ctl/token"; do kind "$got" >/dev/null || fail 75 "$got cannot be examined"; done
    [[ ! -f $1/ctl/token || -r $1/ctl/token ]] || fail 75 "$1/ctl/token cannot be read"
  fi
  fail 74 "$1 exists with token $(text "$1/ctl/token"), but the ledger has $2"
}

# clear NAME: removes whatever has this name, without following links; folders without permissions too.
clear() {
  rm -rf -- "./$1" 2>/dev/null && return
  chmod -R u+rwx -- "./$1" 2>/dev/null
  rm -rf -- "./$1" || fail 75 "$1 cannot be removed"
}

# mark MARKED: marks runs_dir as this gateway's and shows whose it is.
op_mark() {
  local is temp
  is=$(kind .gateway-id) || fail 75 "$root/.gateway-id cannot be examined"
  [[ $is != none || $1 == 0 ]] || fail 70 "unmarked"
  [[ -O . ]] || fail 76 "belongs to user $(stat -c %u .), not to the gateway's user $EUID there"
  [[ $(stat -c %A .) == ?????-??-? || -k . ]] || fail 76 "can be written by others (mode $(stat -c %a .))"
  if [[ $is == none ]]; then
    new .gateway-id
    temp=$fresh
    put "$temp" "$2" "$3"
    ln -T -- "$temp" .gateway-id 2>/dev/null
    durable .
    rm -f -- "$temp"
  fi
  show .gateway-id 4096 0 70
}

# start ARGUMENT…: checks that this is the gateway's runs_dir, and carries the operation out.
start() {
  local is list
  if [[ ${1-} == list ]]; then # the arguments are too long for a command line
    mapfile -d '' -t list
    set -- "${list[@]}"
  fi
  is=$(kind "$root/.") || fail 70 "$root cannot be examined"
  if [[ $is != directory ]]; then
    [[ $operation == mark ]] || fail 70 "$root is missing"
    [[ $is == none && $1 == 1 ]] && fail 70 "unmarked"
    [[ $is == none ]] && fail 76 "does not exist"
  fi
  cd -P -- "$root" 2>/dev/null || fail 70 "$root cannot be entered"
  base=$PWD
  if [[ $operation != mark ]]; then
    is=$(kind .gateway-id) || fail 70 "$root/.gateway-id cannot be examined"
    [[ $is == regular* && $(text .gateway-id) == "$id" ]] || fail 70 "$root has no file .gateway-id of this gateway"
  fi
  "op_$operation" "$@"
}
