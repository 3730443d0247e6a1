#!/bin/bash
# slurmgate array script
#
#   array   {{.Name}}
#   tasks   {{.Tasks}}
#
# Read me. Slurm starts this script once for each task. All it does is to look up the task's line below, which names the folder of one
# attempt and the SHA-256 of the attempt's own job script, and to execute that script if it is still the same. What follows is as in a job
# of its own: the script takes the attempt's claim, or ends with 90. This one's own exit codes: 94 the attempt's log cannot be written, 95
# its folder is not on this node, 98 its script is not the one that was sent.
set -u; umask 077
export LC_ALL=C PATH=/usr/bin:/bin

task=${SLURM_ARRAY_TASK_ID:-}
case $task in
{{range $i, $t := .Table}}{{$i}}) sha256={{$t.SHA256}} attempt={{$t.Attempt}} ;;
{{end}}*) echo "this is the script of a job array: Slurm starts it"; exit 90 ;;
esac
script=$attempt/ctl/{{.Script}} log=$attempt/ctl/{{.Log}}
[[ -f $script ]] && cd -- "$attempt" || exit 95
{ : >>"$log"; } 2>/dev/null || exit 94
exec >>"$log" 2>&1
[[ $(sha256sum <"$script") == "$sha256  -" ]] || { echo "the attempt's script was changed after the array was sent; nothing was executed"; exit 98; }
exec /bin/bash "$script"
