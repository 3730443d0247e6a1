# Looks at Apptainer on the node, and at what a program in a container can do there.
{{.Find}}
[[ -x $apptainer ]] || { echo "apptainer missing $apptainer"; exit; }
version=$("$apptainer" --version 2>&1 </dev/null) || version="fails: $version"
echo "apptainer ${version//$'\n'/ }"
libexec=$("$apptainer" buildcfg LIBEXECDIR 2>/dev/null)
if [[ -u $libexec/apptainer/bin/starter-suid ]]; then echo "suid yes"; else echo "suid no"; fi
{{if not .Image}}exit
{{end}}enter=(env -i PATH="$PATH" HOME="$PWD" LC_ALL=C "$apptainer" --quiet exec --containall --cleanenv --no-eval --no-privs --no-home --home /tmp
  --net --network none --no-mount "hostfs,bind-paths,home,cwd"{{if .Seccomp}} --security seccomp:{{.Seccomp}}{{end}} --pwd /)
# The image may hold no program that is known here. That a program of a name that none has is what was not found shows that the container was set up;
# of an image that is missing the same words would not name that program.
none=/slurmgate-none-$1
said=$("${enter[@]}" {{.Image}} "$none" 2>&1 </dev/null)
[[ $said != *"$none"* ]] || said=ok
echo "container ${said//$'\n'/ }"
# What a program finds inside, seen by the node's own bash and unshare over the image.
over=()
for d in /usr /bin /lib /lib64; do [[ ! -d $d ]] || over+=(--bind "$d:$d:ro"); done
"${enter[@]}" "${over[@]}" {{.Image}} /bin/bash -c '
  while read -r k v; do case $k in NoNewPrivs: | CapBnd: | CapEff: | Seccomp:) echo "wall.${k%:} $v" ;; esac; done </proc/self/status
  net=""; while read -r n _; do case $n in *:) net="$net ${n%:}" ;; esac; done </proc/net/dev
  echo "wall.net ${net# }"
  if ! why=$(unshare --user /bin/true 2>&1); then echo "wall.users refused: $why"; else echo "wall.users possible"; fi
  pids=(/proc/[0-9]*); echo "wall.pids ${#pids[@]}"
  echo "wall.end yes"' 2>/dev/null </dev/null | grep -E '^wall\.[A-Za-z]+ '
status=${PIPESTATUS[0]}
[[ $status == 0 ]] || echo "wall.failed $status"
