#!/bin/bash
# slurmgate job script, slurm_script_v1
#
#   run      run_0X8Z4D1X467KV94K4TXG0D9BXT
#   attempt  1
#   image    sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
#
# Read me. This script executes one attempt of a run at most once, however often Slurm starts it: it goes on only if
# /shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT/a1/ctl/claim
# names this very job and start. Its messages are in job.log beside the claim, the program's output in stdout and stderr, how it
# ended in "exit", and what it left in "manifest" (only on success). Its own exit codes: 90 another has the claim, 91 the image or 92 an
# input is not the pinned one or cannot be read, 93 no Apptainer, 94 the control folder cannot be written, 95 it is not here, 96 is full.
# It was sent with
#   sbatch --parsable --export=NIL --propagate=NONE --no-requeue --nodes=1 --ntasks=1 --cpus-per-task=2 --mem=2048M --time=20 \
#     --job-name=sg-run_0X8Z4D1X467KV94K4TXG0D9BXT-a1-0123456789ab \
#     --comment=slurmgate,tool=samtools.flagstat,by=user:lab,id=prn_0D6C7B2A49E1F35880A2C6D41B --partition=main --account=research \
#     --chdir=/shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT/a1 --output=/shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT/a1/ctl/job.log \
#     --error=/shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT/a1/ctl/job.log --open-mode=append \
#     /shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT/a1/ctl/script
#
# shellcheck disable=SC2016 # a plan's words are meant literally
set -u; umask 077
export LC_ALL=C PATH=/usr/bin:/bin

run=/shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT
attempt=/shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT/a1
ctl=$attempt/ctl
token=0123456789abcdef0123456789abcdef
limit=900 grace=10 # seconds
pinned_sha256=49306aaa9536786a4d8786c3f5000b3e146f33e93019ae3d8296264c687e32cb
stdout=/shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT/a1/out/flagstat.json
container=(--quiet exec --containall --workdir /shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT/a1/tmp --bind
  /shared/runs/run_0X8Z4D1X467KV94K4TXG0D9BXT/a1/out:/work/out
  /shared/images/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855.sif) # Apptainer's arguments up to the image
program=(samtools flagstat -O json /work/in/input.bam)
environment=()
outputs=(out/flagstat.json)

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
now() { local up && read -r up _ </proc/uptime && printf '%s' "${up/./}"; } # 1/100 s, untouched by clock changes
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
  local first last said none why room=/tmp/.slurmgate-$token name=${program[0]}
  first=$(head -c 256 -- "$ctl/stderr" | head -n 1) last=$(tail -c 4096 -- "$ctl/stderr" | tail -n 1)
  none=${name%"${name##*/}"}slurmgate-none-$token
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
  timeout -k "$grace" 0 "${launch[@]}" "${container[@]}" "$@" <&0 &
  children=("$!"); [[ -z $terminated$expired ]] || end # it came just now
  await "$!"
}

# 1. The claim: of all jobs and starts, one gets its file linked to this name. Only what is read there decides.
[[ -f $ctl/pinned.sha256 ]] || { say "the attempt's folder is not on this node: storage.runs_dir is missing here, or another filesystem"; exit 95; }
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

# 2. What was pinned is what is here: the list itself, the image, the inputs.
is "$ctl/pinned.sha256" "$pinned_sha256" || { say "the list of pinned files was changed"; finish 91 image_mismatch; }
code=91 what=image
check() { # LINE of the list: the end, unless its file is there and has those bytes
  file=${1:66} sum='' reason=missing
  [[ $file == /* ]] || file=$run/$file
  [[ -f $file ]] && is "$file" "${1:0:64}" && return
  [[ ! -e $file ]] || reason=unreadable
  [[ ${#sum} != 64 ]] || reason=mismatch
  say "the $what is not the pinned one, $reason: $file"
  finish "$code" "${what}_$reason"
}
skip=$(printf '%66s' '') && skip=${skip// /?} # a checksum and two blanks
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
{
  IFS= read -r line && check "$line"
  check_inputs
} <"$ctl/pinned.sha256"

# 3. Apptainer.
apptainer=/usr/bin/apptainer
[[ -x $apptainer ]] || { say "Apptainer is not on this node: ${apptainer:-not in PATH}"; finish 93 runtime_missing; }

# 4. The program, with an empty environment, nothing on standard input, and its own time limit.
{ mkdir -p -- "$attempt/out" "$attempt/meta" "$attempt/tmp" "${stdout%/*}" && : >"$stdout" && : >"$ctl/stderr"; } ||
  finish 94 control_unwritable
[[ -z $terminated ]] || finish 143 terminated
started=$(now) && read -ra before <<<"$(ticks)"
timer & timer=$!
launch=(env -i PATH="$PATH" HOME="$attempt/tmp" LC_ALL=C "${environment[@]}" "$apptainer")
carry "${program[@]}" </dev/null >"$stdout" 2>"$ctl/stderr"
children=() ran=$(($(now) - started)) && read -ra used <<<"$(ticks)"
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
  blame
fi
finish "$code" "$reason"

# 6. Success: what is there of the declared outputs. Only a plain, readable file with one name, reached without a symlink, is one.
# Sizes are looked at first: what the outputs together may not have is not hashed.
real=$(realpath -e -- "$attempt") left=5497558138880
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
if ! manifest=$(for path in "${outputs[@]}"; do describe "$path" || exit; done) ||
  ! leave manifest "slurmgate-manifest 1 $execution"$'\n'"${manifest:+$manifest$'\n'}end"; then
  say "the manifest cannot be written"
  exit 94
fi
exit 0
