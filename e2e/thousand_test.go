//go:build thousand

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A thousand runs that are ready together leave as one job array, whatever becomes of its sbatch or of the gateway: nothing is executed
// that was cancelled, nothing twice, no run is stuck, and cancelling all of them is a few calls to Slurm. `make thousand` runs this test.
//
// proves MANY-02 MANY-03
func TestThousand(t *testing.T) {
	for name, wrapper := range map[string]string{
		"accepted":       `exec /usr/bin/sbatch "$@"`,
		"answer lost":    `/usr/bin/sbatch "$@" >/dev/null; exit 1`,
		"nothing sent":   `touch "$D/once"; exit 1`,
		"gateway killed": `/usr/bin/sbatch "$@"; r=$?; touch "$D/once"; kill -KILL "$(cat "$D/files/pid")"; exit $r`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "probing", func(f *siteFile) { f.Partition = "big" })
			s.addTool("probe.many", manyPack)
			s.inArrays(1001)
			s.wrapped("sbatch", "D="+s.dir+`; echo "$*" >>"$D/sbatches"; case $* in *--array*) [ -e "$D/once" ] || { `+wrapper+
				`; } ;; esac; exec /usr/bin/sbatch "$@"`)
			shell(t, "lab", `rm "$1"; printf '#!/bin/bash\necho "$*" >>%s/scancels; exec /usr/bin/scancel "$@"\n' "$2" >"$1"; chmod 755 "$1"`,
				s.dir+"/bin/scancel", s.dir)
			d := s.serve()
			s.file("pid", d.pid)
			var sheet strings.Builder
			sheet.WriteString("sample,n\n")
			for i := range 1000 {
				fmt.Fprintf(&sheet, "S%04d,%d\n", i, i)
			}
			began := time.Now()
			step := func(what string) { t.Logf("%6.1f s: %s", time.Since(began).Seconds(), what) }
			s.ok(nil, "drain", "--queue", "--reason", "company")
			s.ok(nil, "batch", "run", "probe.many", "--sheet", s.file("sheet.csv", sheet.String()), "--name", "many")
			var now batchNow
			within(t, 10*time.Minute, "submits", func() bool { s.ok(&now, "batch", "status", "many"); return now.Todo == 0 })
			step("all rows are runs")
			s.ok(nil, "resume")
			if name == "gateway killed" {
				d.ended(t)
				step("the gateway is dead")
				s.serve()
			}
			queued := func() int {
				n, _ := strconv.Atoi(shell(t, "lab", `squeue -h -r -p big -o %j | grep -c ^sg- || true`))
				return n
			}
			if name == "nothing sent" {
				within(t, 10*time.Minute, "voids", func() bool {
					s.ok(&now, "batch", "status", "many")
					return now.Counts["failed"] > 900 || queued() > 900
				})
			} else {
				within(t, 10*time.Minute, "jobs", func() bool { return queued() == 1000 })
				step("Slurm has all of them")
				within(t, 10*time.Minute, "job ids", func() bool { return s.pending() == 1000 })
			}
			step("the gateway knows what became of all")
			sent := strings.Count(shell(t, "lab", `cat "$1"`, s.dir+"/sbatches"), "--array")
			if name != "nothing sent" && sent > 3 {
				t.Errorf("%d sbatch", sent)
			}
			s.ok(nil, "batch", "cancel", "many")
			s.cli("batch", "wait", "many", "--timeout", "10m") // its exit status reports that rows failed
			now = batchNow{}
			s.ok(&now, "batch", "status", "many")
			step("cancelled")
			if over := now.Counts["cancelled"] + now.Counts["failed"]; over != 1000 || name != "nothing sent" && now.Counts["failed"] > 0 {
				t.Errorf("after the cancel batch status returned %+v, want a thousand rows ended, and none failed that was sent",
					now)
			}
			within(t, 10*time.Minute, "empty queue", func() bool { return queued() == 0 })
			step("Slurm has none of them")
			calls := strings.Count(shell(t, "lab", `touch "$1"; cat "$1"`, s.dir+"/scancels"), "--name=")
			if t.Logf("%d sbatch, %d scancel, %+v", sent, calls, now.Counts); name != "nothing sent" && calls > 30 {
				t.Errorf("%d scancel for a thousand runs", calls)
			}
			if n := shell(t, "lab", `find "$1/runs" -path '*/ctl/claim' -exec grep -L ' void' {} + | wc -l`, s.dir); n != "0" {
				t.Errorf("%s runs have a claim of a job", n)
			}
		})
	}
}

// pending counts the runs whose job waits.
func (s *site) pending() (n int) {
	for cursor := ""; ; {
		args := []string{"runs", "list", "--state", "queued", "--limit", "200"}
		if cursor != "" {
			args = append(args, "--cursor", cursor)
		}
		var page struct {
			Runs   []struct{ Phase string }
			Cursor *string
		}
		s.ok(&page, args...)
		for _, r := range page.Runs {
			if r.Phase == "pending" {
				n++
			}
		}
		if page.Cursor == nil || *page.Cursor == "" {
			return n
		}
		cursor = *page.Cursor
	}
}

const manyPack = "id: probe.many\n" + packHead + `inputSchema: {type: object, required: [n], additionalProperties: false, properties: {n: {type: integer}}}
outputSchema: {type: object}
declaredOutputs: [{role: result, type: TEXT, label: result, srcRelpath: out/result}]
container: {image: probe}
resources: {cpus: 1, memMb: 100, timeLimitSeconds: 600}
execution: {kind: cli, cmd: [testprog, write, out/result, "{{ params.n }}"]}
`
