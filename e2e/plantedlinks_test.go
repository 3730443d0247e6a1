package e2e

import (
	"strings"
	"testing"
)

// Nothing is done as a user in a folder that another user can replace, where links could lead the output of the user's jobs anywhere. The
// run names the folder, and continues by itself once it is the user's alone.
//
// proves SITE-08
func TestRunsBelowAFolderOfOthers(t *testing.T) {
	t.Parallel()
	s, _ := callerSite(t)
	above := s.callerRuns("alice")
	s.replace("site.yaml", s.callerRuns("{user}"), s.callerRuns("{user}")+"/runs")
	shell(t, "alice", `mkdir -p "$1" && chmod 0777 "$1"`, above)
	s.serve()
	a := s.submitAs("alice", probePlan("write", "out/result", "alice's"))
	var l looked
	until(t, "a reason of "+a.RunID, func() bool {
		s.ok(&l, "get", a.RunID)
		return l.why() != ""
	})
	if l.State != "queued" || !strings.Contains(l.why(), "replace what is in "+above+" on ") {
		t.Errorf("a run below a folder that all may write to is %s for %q, want queued, for that folder", l.State, l.why())
	}
	shell(t, "alice", `chmod 0700 "$1"`, above)
	s.ends(a.RunID, "succeeded")
}

// Slurm opens the output of a job with the rights of the job's user. A link there, planted before the job starts, leads to nothing that the
// user cannot write: neither an existing file, nor a new one, nor a new folder.
//
// proves SITE-08
func TestPlantedOutput(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	at := s.callerRuns("alice")
	shell(t, "root", `mkdir -m 0755 "$1" "$1/own" && echo root >"$1/own/there" && chmod 0600 "$1/own/there"`, s.dir+"/root")
	shell(t, "alice", `mkdir "$1" && ln -s "$2/own/there" "$1/there" && ln -s "$2/own/new" "$1/new" && ln -s "$2/own" "$1/folder"`, at,
		s.dir+"/root")
	t.Cleanup(func() { shell(t, "root", removing(`"$1"`), at) })
	for _, name := range []string{"there", "new", "folder/below/log", "plain"} {
		shell(t, "alice", `cd "$1" && sbatch --wait --parsable --output="$1/$2" --open-mode=append --wrap "echo planted" || :`, at, name)
	}
	got := shell(t, "root", `cat "$1/own/"* && ls "$1/own" && cat "$2/plain"`, s.dir+"/root", at)
	if want := "root\nthere\nplanted"; got != want {
		t.Errorf("after four jobs, three with outputs behind links to what is root's, root's folder and the fourth output have %q, want %q", got,
			want)
	}
}
