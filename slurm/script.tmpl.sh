#!/bin/bash
# slurmgate job script, {{.Version}}
#
#   run      {{.RunID}}
#   attempt  {{.N}}
#   image    sha256:{{.Image}}
#
# Read me. This script executes one attempt of a run at most once, however often Slurm starts it: it goes on only if
# {{.Ctl}}/claim
# names this very job and start. Its messages are in job.log beside the claim, the program's output in stdout and stderr, how it
# ended in "exit", and what it left in "manifest" (only on success). Its own exit codes: 90 another has the claim, 91 the image or 92 an
# input is not the pinned one or cannot be read, 93 no Apptainer, 94 the control folder cannot be written, 95 it is not here, 96 is full{{if .Scratch}},
# 97 there is no scratch folder{{end}}.
# It was sent with
{{.Sent}}
#
# shellcheck disable=SC2016 # a plan's words are meant literally
set -u; umask 077
export LC_ALL=C PATH=/usr/bin:/bin

run={{.Run}}
attempt={{.Attempt}}
ctl=$attempt/ctl
token={{.Token}}
limit={{.Limit}} grace={{.Grace}} # seconds
pinned_sha256={{.PinnedSHA256}}
stdout={{.Stdout}}
container=({{.Container}}) # Apptainer's arguments up to the image
program=({{.Program}})
{{if .Pipe}}names=({{.Names}})
{{range $i, $words := .Pipe}}pipe{{$i}}=({{$words}}) # reads what the program before it writes
{{end}}{{end}}environment=({{.Env}})
outputs=({{.Outputs}})
{{if .InPlace}}in_place=({{.InPlace}}) # files read where they lie, each with its inode, size, mtime and ctime when it was registered
{{end}}{{if .Recheck}}recheck=({{.Recheck}}) # those that others may write to: hashed after the program, too
{{end}}{{if .Folders}}folders=({{.Folders}})
{{end}}
[[ -n ${SLURM_JOB_ID:-} ]] || { echo "this is a job script: Slurm starts it"; exit 90; }
job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID} task=${SLURM_ARRAY_TASK_ID:--} restart=${SLURM_RESTART_COUNT:-0}
node=${SLURMD_NODENAME:-$HOSTNAME}
execution="job=$job task=$task restart=$restart"
suffix=$job${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}.$restart
hash=(openssl dgst -sha256 -r) && "${hash[@]}" </dev/null >/dev/null 2>&1 || hash=(sha256sum)
children=() terminated='' expired='' interrupted='' failed='' ran=0 used=(0 0)
cgroups=/sys/fs/cgroup own_cgroup=/proc/self/cgroup

say() { TZ=UTC printf '%(%FT%TZ)T %s\n' -1 "$*"; }
digest() { "${hash[@]}" <"$1" | cut -c 1-64; }
is() { # FILE SHA256: it has these bytes. A digest is cut short by TERM, which goes to all processes of the job and may come to this one last
  sum=$(digest "$1")
  [[ ${#sum} == 64 ]] || { sleep 1; [[ -z $terminated ]] || finish 143 terminated; sum=$(digest "$1"); }
  [[ $sum == "$2" ]]
}
{{if .Trees}}listing() { # FOLDER: the SHA-256 of its listing: mode, inode, size, mtime, ctime and path of all that is in it
  (cd -- "$1" && find . -print0 | sort -z | xargs -0 -r stat -c '%f %i %s %.Y %.Z %n') 2>&1 | "${hash[@]}" | cut -c 1-64
}
{{end}}{{if .InPlace}}settle() { # PATH: all that was written to it is on the disk. Only from then on does a write through a mapped page change its times
{{if .Trees}}  if [[ -d $1 ]]; then sync -f -- "$1"; else sync -- "$1"; fi 2>/dev/null
{{else}}  sync -- "$1" 2>/dev/null
{{end}}  return 0 # a filesystem that cannot sync cannot be written to
}
devices=()
unchanged() { # the files read in place are what was registered, and on the device they were on before
  local i is good=0
  for ((i = 0; i < ${#in_place[@]}; i += 2)); do
    settle "${in_place[i]}"
{{if .Trees}}    if [[ ${in_place[i + 1]} == 'tree '* ]]; then
      is="$(stat -L -c '%d' -- "${in_place[i]}" 2>/dev/null || echo -) tree $(listing "${in_place[i]}")"
    else
      is=$(stat -L -c '%d %i %s %.Y %.Z' /dev/stdin <"${in_place[i]}" 2>&1)
    fi
{{else}}    is=$(stat -L -c '%d %i %s %.Y %.Z' /dev/stdin <"${in_place[i]}" 2>&1)
{{end}}    : "${devices[i]:=${is%% *}}"
    [[ $is == "${devices[i]} ${in_place[i + 1]}" ]] && continue
    say "the input ${in_place[i]} was changed: registered with inode, size, mtime and ctime ${in_place[i + 1]}; now ${is#* }"{{if .Trees}} # of all in a tree{{end}}
    good=1
  done
  return "$good"
}
{{end}}now() { local up && read -r up _ </proc/uptime && printf '%s' "${up/./}"; } # 1/100 s, untouched by clock changes
ticks() { # CPU time of the children that ended: user, system
  local stat && read -r stat </proc/$$/stat && read -ra stat <<<"${stat##*) }" && printf '%d %d' "${stat[13]}" "${stat[14]}"
}
oom_kills() { # how often the kernel killed a process of this job for its memory, by the job's own cgroup (v2); nothing where it has none
  local line dir='' key count
  while IFS= read -r line; do
    [[ $line != 0::*"/job_$SLURM_JOB_ID/"* ]] || dir=$cgroups${line#0::}
  done <"$own_cgroup"
  [[ -z $dir ]] || while read -r key count; do
    [[ $key != oom_kill || $count == *[!0-9]* ]] || printf '%s' "$count"
  done <"${dir%%"/job_$SLURM_JOB_ID/"*}/job_$SLURM_JOB_ID/memory.events"
} 2>/dev/null
leave() { # NAME CONTENT: a control file appears whole or not at all, and on disk
  local part="$ctl/.$1.$suffix"
  printf '%s\n' "$2" >"$part" && sync -- "$part" && mv -fT -- "$part" "$ctl/$1" && { sync -- "$ctl" || true; }
}
unwritable() { # the end, where control files cannot be written
  local why='' room=$ctl/.room.$suffix
  why=$({ head -c 4096 /dev/zero >"$room"; } 2>&1); rm -f -- "$room"
  [[ $why != *'No space left'* && $why != *'quota exceeded'* ]] || exit 96
  exit 94
}
finish() { # CODE REASON: the exit file; then the end, unless there is success to describe
  trap '' TERM # the commands below inherit it
  local code=$1 reason=$2 oom hz && hz=$(getconf CLK_TCK 2>/dev/null) || hz=100
  oom=$(oom_kills)
  [[ -z $terminated || $code == 0 ]] || reason=terminated
  leave exit "$(printf 'slurmgate-exit 1 %s code=%d reason=%s elapsed=%d.%02d user=%d.%02d sys=%d.%02d node=%s%s' \
    "$execution" "$code" "$reason" $((ran / 100)) $((ran % 100)) $((used[0] / hz)) $((used[0] % hz * 100 / hz)) \
    $((used[1] / hz)) $((used[1] % hz * 100 / hz)) "$node" "${failed:+ program=$failed}${oom:+ oom=$oom}")" || { say "the exit file cannot be written"; unwritable; }
  say "$reason, code $code"
  ((code == 0)) || exit "$code"
  trap - TERM
}

blame() { # Names what failed if it was not the program. FATAL, ERROR and such statuses may be Apptainer's or the program's, whose words may look
  # the same: so Apptainer is asked for a program that no image has. What it says of that shows whether it makes containers here.
  local first last said none why room=/tmp/.slurmgate-$token name={{if .Pipe}}$1{{else}}${program[0]}{{end}}
{{if .Pipe}}  first=$(head -c 65536 -- "$ctl/stderr" | grep -a -m 1 -e '^ERROR  :' -e '^Error for command "') # of all programs
  last=$(tail -c 65536 -- "$ctl/stderr" | grep -a '^FATAL:   ' | tail -n 1)
{{else}}  first=$(head -c 256 -- "$ctl/stderr" | head -n 1) last=$(tail -c 4096 -- "$ctl/stderr" | tail -n 1)
{{end}}  none=${name%"${name##*/}"}slurmgate-none-$token
  [[ $code == 255 && $last == 'FATAL:   '* || $code == 1 && $first == *@('ERROR  : '|'Error for command "')* || $code == 12[67] ]] || return
  said=$(timeout -k 5 60 "${launch[@]}" "${container[@]}" "$none" </dev/null 2>&1 | tail -c 4096)
  if [[ $said == *"$none"* ]]; then
    said=${said##*$'\n'} # a container can be made
    [[ $code == 255 && (${said//"$none"/"$name"} == "$last" || $last =~ ^'FATAL:   '('is a directory'|'permission denied'|.*'exec format error')$) ]] &&
      reason=program_not_started
    return
  fi
  why=$({ head -c 65536 /dev/zero >"$room"; } 2>&1); rm -f -- "$room"
  case $said$why in
  *'unknown flag: '*) reason=runtime_too_old ;;
  *'user namespace'*) reason=no_user_namespaces ;;
  *[Nn]'o space left on device'* | *[Qq]'uota exceeded'*) reason=node_disk_full ;;
  *) reason=runtime_broken ;;
  esac
  say "Apptainer makes no container on this node: $said"
}
end() { interrupted=yes; ((${#children[@]} == 0)) || kill -TERM "${children[@]}" 2>/dev/null; }
trap 'terminated=yes; end' TERM; trap 'expired=yes; end' RTMIN+7 # none of CONT: bash loses a TERM that comes while it runs
timer() { # sends RTMIN+7 when the program has run for its limit. While Slurm suspends the job this is stopped, too: of such a pause a second counts
  local left=$((limit * 100)) step up last nothing # 1/100 s
  trap 'exit 0' TERM; exec {nothing}<> <(:); read -r last _ </proc/uptime
  while ((left > 0)) || longer; do
    read -r -t 1 -u "$nothing"; kill -0 $$ && read -r up _ </proc/uptime || exit
    step=$((${up/./} - ${last/./})) last=$up && left=$((left - (step > 200 ? 100 : step)))
  done
  kill -RTMIN+7 $$
}
longer() { # an administrator has raised Slurm's limit: the gateway left it here, and Slurm enforces it
  [[ $(cat -- "$ctl/limit" 2>/dev/null) =~ ^"slurmgate-limit 1 token=$token seconds="([1-9][0-9]{0,8})$ ]] &&
    ((BASH_REMATCH[1] > limit)) && left=$(((BASH_REMATCH[1] - limit) * 100)) limit=${BASH_REMATCH[1]}
}
await() { # PID: its status is in code
  while :; do
    interrupted='' && wait "$1"
    code=$?
    [[ -n $interrupted ]] || break # else the trap ended the wait, perhaps before the process ended
  done
}
carry() { # WORD...: runs a program in a container; its status is in code. What is left of it $grace seconds after TERM is killed
  timeout -k "$grace" 0 "${launch[@]}" "${container[@]}" "$@" <&0{{if .Pipe}} {report}>&-{{end}} &
  children=("$!"); [[ -z $terminated$expired ]] || end # it came just now
  await "$!"
}
{{if .Pipe}}part() { # NUMBER WORD...: a process of its own. It reports how its program ended before it lets go of the pipe, so the first end is reported first
  children=(); trap 'terminated=yes; end' TERM
  local number=$1; shift
  carry "$@"
  echo "$number" >&"$report"
  exit "$code"
}
connect() { # WORD...: starts the next program
  local in=$from out both
  if ((++parts == {{.Parts}})); then
    exec {out}>"$stdout"
  else # a pipe without a name: both ends of it are opened anew
    exec {both}<> <(:)
    exec {out}>"/proc/self/fd/$both"; exec {from}<"/proc/self/fd/$both"; exec {both}>&-
  fi
  part "$parts" "$@" <&"$in" >&"$out" 2>>"$ctl/stderr" {in}<&- {out}>&- {from}<&- &
  running+=("$!") && children=("${running[@]}"); [[ -z $terminated$expired ]] || end
  exec {in}<&- {out}>&-
}
{{end}}
# 1. The claim: of all jobs and starts, one gets its file linked to this name. Only what is read there decides.
[[ -f $ctl/{{.PinnedFile}} ]] || { say "the attempt's folder is not on this node: storage.runs_dir is missing here, or another filesystem"; exit 95; }
mine=$ctl/.claim.$suffix # stays, so that a second start of the same number fails here
claim="slurmgate-claim 1 $execution token=$token node=$node"
if ! (set -C && : >"$mine"); then
  [[ -e $mine ]] && exit 90
  unwritable
fi
{ printf '%s\n' "$claim" >"$mine" && sync -- "$mine"; } || unwritable
ln -T -- "$mine" "$ctl/claim" 2>/dev/null
if [[ $(cat -- "$ctl/claim") != "$claim" ]]; then
  rm -f -- "$mine"
  [[ -e $ctl/claim ]] || exit 94
  say "another has the claim: $(cat -- "$ctl/claim")"
  exit 90
fi
sync -- "$ctl" || true
say "job $job on $node executes this attempt"

# 2. What was pinned is what is here: the list itself, the image{{if .VerifyInputs}}, the inputs{{end}}.
is "$ctl/{{.PinnedFile}}" "$pinned_sha256" || { say "the list of pinned files was changed"; finish 91 image_mismatch; }
code=91 what=image{{if .InPlace}} same=yes
unchanged || same=''{{end}}
check() { # LINE of the list: the end, unless its file is there and has those bytes
  file=${1:66} sum='' reason=missing
  [[ $file == /* ]] || file=$run/$file
  [[ -f $file ]] && is "$file" "${1:0:64}" && return
  [[ ! -e $file ]] || reason=unreadable
  [[ ${#sum} != 64 ]] || reason=mismatch
  say "the $what is not the pinned one, $reason: $file"
  finish "$code" "${what}_$reason"
}
{{if .VerifyInputs}}skip=$(printf '%66s' '') && skip=${skip// /?} # a checksum and two blanks
check_inputs() { # check of each of the lines on standard input
  code=92 what=input
  while mapfile -t -n 256 lines && ((${#lines[@]} > 0)); do # 256 files are hashed by one process
    for line in "${lines[@]}"; do
      file=${line:66} && [[ $file == /* ]] || file=$run/$file
      [[ -f $file ]] || check "$line"
    done
    # shellcheck disable=SC2295 # a pattern
    mapfile -t sums < <(cd -- "$run" && "${hash[@]}" "${lines[@]#$skip}" 2>/dev/null)
    for i in "${!lines[@]}"; do
      [[ ${sums[i]-} == "${lines[i]:0:64} "* ]] || check "${lines[i]}"
    done
  done
}
{{end}}{{if .Recheck}}rechecked() { # the lines of the list that are hashed after the program, too
  local path
  while IFS= read -r line; do
    for path in "${recheck[@]}"; do
      [[ ${line:66} != "$path" && ${line:66} != "$path"/* ]] || printf '%s\n' "$line"
    done
  done <"$ctl/{{.PinnedFile}}"
}
{{end}}{
  IFS= read -r line && check "$line"{{if .VerifyInputs}}
  check_inputs{{else}} # the site verifies images only{{end}}
} <"$ctl/{{.PinnedFile}}"
{{if .InPlace}}[[ -n $same ]] || finish 92 input_mismatch
{{end}}
# 3. Apptainer.
{{if .Modules}}set +u # module systems read unset variables
# shellcheck disable=SC1091
source {{.ModuleInit}} && module load{{range .Modules}} {{.}}{{end}}
set -u
apptainer=$(type -P apptainer)
{{else}}apptainer={{.Apptainer}}{{if .Scripted}} # what is called the image here is a script of the gateway's own, which needs no container{{end}}
{{end}}[[ -x $apptainer ]] || { say "Apptainer is not on this node: ${apptainer:-not in PATH}"; finish 93 runtime_missing; }
{{if .GPUs}}for v in CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES GPU_DEVICE_ORDINAL; do
  [[ -z ${!v+set} ]] || environment+=("$v=${!v}" "APPTAINERENV_$v=${!v}")
done
{{end}}
{{if .Folders}}[[ -x /usr/bin/find ]] || { say "there is no /usr/bin/find on this node, which describes output folders"; finish 93 runtime_missing; }
{{end}}# 4. The program, with an empty environment, {{if .FromInput}}an input{{else}}nothing{{end}} on standard input, and its own time limit.
{ mkdir -p -- "$attempt/out" "$attempt/meta" "$attempt/tmp" "${stdout%/*}"{{if .Folders}} "${folders[@]/#/$attempt/}"{{end}} && : >"$stdout" && : >"$ctl/stderr"; } ||
  finish 94 control_unwritable
{{if .Scratch}}# /tmp of the container is a private folder on the node's own disk, which goes with the script, however it ends.
scratch=$(mktemp -d -- {{.Scratch}}/slurmgate.XXXXXXXXXX) || { say "no folder can be made in slurm.scratch, "{{.Scratch}}; finish 97 scratch_missing; }
trap 'chmod -R u+rwX -- "$scratch" 2>/dev/null; rm -rf --one-file-system -- "$scratch"' EXIT
for at in "${!container[@]}"; do [[ ${container[at]} != --workdir ]] || { container[at + 1]=$scratch && break; }; done
{{end}}[[ -z $terminated ]] || finish 143 terminated
started=$(now) && read -ra before <<<"$(ticks)"
timer & timer=$!
launch=(env -i PATH="$PATH" HOME="$attempt/tmp" LC_ALL=C "${environment[@]}" "$apptainer")
{{if .Pipe}}parts=0 running=() statuses=()
exec {report}<> <(:); exec {from}<{{.Stdin}} || finish 92 input_unreadable
connect "${program[@]}"
{{range $i, $words := .Pipe}}connect "${pipe{{$i}}[@]}"
{{end}}for child in "${running[@]}"; do await "$child"; statuses+=("$code"); done
code=0 # of the program that failed first: what it did to the others is not the cause
for number in $(while read -r -t 1 -u "$report" ended; do echo "$ended"; done) {1..{{.Parts}}}; do # who was killed reported nothing
  ((code)) || ((statuses[number - 1] == 0)) || code=${statuses[number - 1]} failed=$number
done
exec {report}>&-
{{else}}carry "${program[@]}" <{{.Stdin}} >"$stdout" 2>"$ctl/stderr"
{{end}}children=() ran=$(($(now) - started)) && read -ra used <<<"$(ticks)"
kill "$timer" 2>/dev/null; wait "$timer"
used=($((${used[0]:-0} - ${before[0]:-0})) $((${used[1]:-0} - ${before[1]:-0})))

# 5. How it ended. TERM goes to all processes of the job, and may come to this one last. Whatever the program makes of it, its time was up.
((code == 0)) || [[ -n $terminated$expired ]] || sleep 1
reason=tool_failed; ((code != 137)) || reason=killed
((code != 146)) || reason=status_lost # Apptainer's 128 + CONT, when CONT comes just after the program's end: nothing dies of CONT
if [[ -n $terminated ]]; then
  reason=terminated code=143 failed='' # whatever the program made of it
elif [[ -n $expired ]]; then
  reason=time_limit && ((code == 137)) || code=124
elif ((code == 0)); then
  reason=ok
else
  blame{{if .Pipe}} "${names[failed - 1]}"{{end}}
fi
{{if .InPlace}}[[ -n $terminated ]] || unchanged || code=92 reason=input_mismatch # while the program ran
{{end}}{{if .Recheck}}ended=$code
[[ -n $terminated || $reason == input_mismatch ]] || check_inputs < <(rechecked)
code=$ended
{{end}}finish "$code" "$reason"

# 6. Success: what is there of the declared outputs. Only a plain, readable file with one name, reached without a symlink, is one.
# Sizes are looked at first: what the outputs together may not have is not hashed.
real=$(realpath -e -- "$attempt") left={{.MaxOutputBytes}}
describe() { # PATH
  local file=$attempt/$1 size sum
  if [[ ! -e $file && ! -L $file ]]; then
    printf 'missing %s\n' "$1"
  elif [[ ! -f $file || ! -r $file || -L $file || $(realpath -e -- "$file") != "$real/$1" || $(stat -c %h -- "$file") != 1 ]]; then
    printf 'irregular %s\n' "$1"
  elif ! size=$(stat -c %s -- "$file"); then
    return 1
  elif ((size > left)); then
    printf 'oversize %d %s\n' "$size" "$1"
  else
    left=$((left - size)) && sync -- "$file" && sum=$(digest "$file") && [[ ${#sum} == 64 ]] && printf 'file %s %d %s\n' "$sum" "$size" "$1"
  fi
}
{{if .Folders}}describe_folder() { # PATH: the files in it, if all that is in it are folders and plain, readable files with one name each
  local folder=$attempt/$1 odd="$1 itself" listed=$ctl/.files.$suffix list sums files count=0 size=0 i j
  if [[ ! -e $folder && ! -L $folder ]]; then
    printf 'missing %s\n' "$1"
    return
  fi
  if [[ ! -d $folder || -L $folder || $(realpath -e -- "$folder") != "$real/$1" ]] || ! odd=$(cd -- "$folder" && find . -mindepth 1 \
    \( -name '*[[:cntrl:]\\]*' -o ! -type f ! -type d -o -type f -links +1 -o ! -readable \) -print -quit &&
    find . -mindepth {{.MaxDepth}} ! -type f -print -quit) || [[ -n $odd ]]; then
    say "what is in $1 cannot be collected: $(printf %q "${odd:-a folder cannot be read}")" >&2
    printf 'irregular %s\n' "$1"
    return
  fi
  (cd -- "$folder" && find . -type f -printf '%s %P\n' | head -n $(({{.MaxFiles}} + 1))) >"$listed" || return
  while read -r i _; do size=$((size + i)) count=$((count + 1)); done <"$listed"
  if ((count > {{.MaxFiles}})); then
    printf 'crowded %s\n' "$1"
  elif ((size > left)); then
    printf 'oversize %d %s\n' "$size" "$1"
  else
    left=$((left - size)) && sync -f -- "$folder" && printf 'directory %d %d %s\n' "$count" "$size" "$1" || return
    while mapfile -t -n 256 list && ((${#list[@]})); do # 256 files are hashed by one process
      files=("${list[@]#* }")
      mapfile -t sums < <(cd -- "$folder" && "${hash[@]}" "${files[@]/#/./}")
      for j in "${!files[@]}"; do
        [[ ${sums[j]-} =~ ^[0-9a-f]{64}' ' ]] && printf 'file %s %s %s\n' "${sums[j]:0:64}" "${list[j]%% *}" "$1/${files[j]}" || return
      done
    done <"$listed"
  fi
  rm -f -- "$listed"
}
describe_all() {
  local path
  printf 'slurmgate-manifest 1 %s\n' "$execution" || return
  for path in "${outputs[@]}"; do describe "$path" || return; done
  for path in "${folders[@]}"; do describe_folder "$path" || return; done
  echo end
}
part=$ctl/.manifest.$suffix
if ! describe_all >"$part" || ! { sync -- "$part" && mv -fT -- "$part" "$ctl/manifest" && { sync -- "$ctl" || true; }; }; then
{{else}}if ! manifest=$(for path in "${outputs[@]}"; do describe "$path" || exit; done) ||
  ! leave manifest "slurmgate-manifest 1 $execution"$'\n'"${manifest:+$manifest$'\n'}end"; then
{{end}}  say "the manifest cannot be written"
  exit 94
fi
exit 0
