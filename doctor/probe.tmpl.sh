#!/bin/sh
# slurmgate doctor looks at the compute node on which this job runs. Each line of the answer is one question and what was found; a question that
# is not in the answer was not looked at. Where the answer cannot be written, the exit status says why: 94 storage.runs_dir cannot be
# written here, 95 it is another filesystem, 96 it is full, 97 it cannot be reached, 98 it is missing, 99 its files are not the gateway's.
umask 077
export LC_ALL=C PATH=/usr/bin:/bin
dir={{.Dir}} runs={{.Runs}} token={{.Token}}
me=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}_${SLURM_ARRAY_TASK_ID:-}
now=$(date +%s)
vars=$(env | grep -c -v -E '^(SLURM|PATH=|PWD=|OLDPWD=|SHLVL=|_=|LC_ALL=|TMPDIR=|HOSTNAME=|ENVIRONMENT=|HOME=|USER=|LOGNAME=|SHELL=|MAIL=|CUDA_|GPU_|ROCR_|HYDRA_|I_MPI_|OMPI_MCA_|PRTE_MCA_)')

if ! why=$(ls -d -- "$dir" 2>&1); then
  case $why in
  *'o such file'*) [ -d "$runs" ] && exit 95; exit 98 ;;
  esac
  exit 97
fi
cd -- "$dir" || exit 97
[ "$(cat token 2>/dev/null)" = "$token" ] || exit 99
out=.answer.$me
fits() { # FILE: 64 KiB can be written there
  why=$( { head -c 65536 /dev/zero >"$1"; } 2>&1) && [ "$(wc -c <"$1")" = 65536 ]
}
fits "$out" || case $why in
*'o space left'* | *'uota exceeded'*) exit 96 ;;
*) exit 94 ;;
esac

say() { # QUESTION ANSWER, in one line
  printf '%s %s\n' "$1" "$(printf '%s' "$2" | tr '\001-\037\177' ' ' | cut -c 1-600)" >>"$out"
}
ok() { # QUESTION COMMAND...: ok, or what the command said
  q=$1
  shift
  if why=$("$@" 2>&1); then say "$q" ok; else say "$q" "${why:-status $?}"; fi
}
within() { # SECONDS COMMAND...
  if command -v timeout >/dev/null; then
    timeout -k 5 "$@"
  else
    shift
    "$@"
  fi
}
runs_programs() { # FOLDER: a program in it can be executed
  printf '#!/bin/sh\nexit 7\n' >"$1/.run.$me" && chmod 700 "$1/.run.$me"
  "$1/.run.$me"
  [ $? = 7 ]
  is=$?
  rm -f -- "$1/.run.$me"
  return $is
}
printf 'slurmgate-probe 1 %s\n' "$token" >"$out"
say node "${SLURMD_NODENAME:-$(uname -n)}"
say time "$now"
name=$(id -un 2>/dev/null) || name=-
say user "$(id -u) $name $(id -g)"
say env "$vars"
printf '%s\n' "$me" >".claim.$me" && sync ".claim.$me"
ln -T ".claim.$me" claim 2>/dev/null
say claim "$(cat claim)"

missing=
for tool in bash cat chmod cut env getconf head ln mkdir mktemp mv realpath rm sha256sum sleep stat sync tail timeout tr; do
  command -v "$tool" >/dev/null || missing="$missing $tool"
done
say tools "${missing:- ok}"
say room "$(stat -f -c '%a %S %d %c' .)"
say tmp_room "$(stat -f -c '%a %S %d %c' /tmp)"
if fits "/tmp/.slurmgate-doctor-$token-$me"; then say tmp ok; else say tmp "${why:-short write}"; fi
rm -f -- "/tmp/.slurmgate-doctor-$token-$me"
{{if .Scratch}}if fits {{.Scratch}}/".slurmgate-doctor-$token-$me"; then say scratch ok; else say scratch "${why:-short write}"; fi
rm -f -- {{.Scratch}}/".slurmgate-doctor-$token-$me"
{{else}}say scratch none
{{end}}ok programs runs_programs .
say limits "$(grep -E '^Max (file size|processes|open files|address space) ' /proc/self/limits | tr -s ' ' | tr '\n' ';')"
ok namespaces unshare --user true
if why=$( { : <>/dev/fuse; } 2>&1); then say fuse ok; else say fuse "$why"; fi
{{if .Seccomp}}if why=$(sha256sum 2>&1 <{{.Seccomp}}); then say seccomp "${why%% *}"; else say seccomp "missing {{.Seccomp}}"; fi
{{end}}missing=
for folder in {{.Binds}}; do [ -d "$folder" ] || missing="$missing, $folder"; done
say binds "${missing#, }"
missing=
for there in {{.References}}; do [ -r "$there" ] && { [ ! -d "$there" ] || [ -x "$there" ]; } || missing="$missing, $there"; done
say references "${missing#, }"

# The images, by size; one of them byte by byte.
[ -d {{.Store}} ] && say store ok || say store missing
bad=
while read -r size file; do
  if [ ! -e "$file" ]; then
    bad="$bad; $file is missing"
  elif [ ! -r "$file" ]; then
    bad="$bad; $file cannot be read"
  elif [ "$(stat -L -c %s -- "$file")" != "$size" ]; then
    bad="$bad; $file has another size"
  fi
done <images
say images "${bad#; }"
{{if .Image}}say digest "$(within 40 sha256sum <{{.Image}} 2>&1 | cut -c 1-64)"
{{end}}

within 45 bash ./container.sh "$token" >"container.$me" 2>/dev/null </dev/null
while read -r q answer; do say "$q" "$answer"; done <"container.$me"
say end yes
sync "$out"
mv -f -- "$out" "answer.$me"
