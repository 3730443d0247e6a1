package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// twoClusters makes a site file for the cluster of these tests, "first", and for a second one next to it, and returns a
// function that runs a command on the second one's login node.
func twoClusters(t *testing.T) (s *site, second func(argv ...string)) {
	t.Helper()
	name := world.cluster + "-b"
	must(t, command("scripts/devcluster", "--name", name, "up", "--beside", world.cluster))
	t.Cleanup(func() { must(t, command("scripts/devcluster", "--name", name, "down")) })
	s = newSite(t, "probing")
	shell(t, "lab", `ln -s /usr/bin "$1/bin-second"`, s.dir)
	s.divide("first", "second", "slurm:\n", "slurm:\n  conf: /etc/slurm-beside/slurm.conf\n  bin_dir: "+s.dir+"/bin-second\n",
		"rpc_per_minute: 6000", "rpc_per_minute: 120")
	return s, func(argv ...string) {
		t.Helper()
		must(t, command(append([]string{"scripts/devcluster", "--name", name, "exec", "--"}, argv...)...))
	}
}

// divide makes the site one of two clusters with a file each. The second's differs by the edits: texts, and what replaces them.
func (s *site) divide(first, second string, edits ...string) {
	s.t.Helper()
	whole := s.text()
	slurm, rest, watch := strings.Index(whole, "slurm:\n"), strings.Index(whole, "import:\n"), strings.Index(whole, "watch:\n")
	files := map[string]string{"site": whole[:slurm] + whole[rest:watch]}
	files["site"] = strings.Replace(files["site"], "site: e2e\n", "sites: ["+first+".yaml, "+second+".yaml]\n", 1)
	for _, of := range []string{first, second} {
		files[of] = "version: 1\nsite: " + of + "\n" + strings.ReplaceAll(whole[slurm:rest]+whole[watch:], s.dir+"/runs", s.dir+"/runs-"+of)
	}
	files[second] = strings.NewReplacer(edits...).Replace(files[second])
	for name, text := range files {
		must(s.t, os.WriteFile(filepath.Join(host(s.dir), name+".yaml"), []byte(text), 0o644))
	}
	must(s.t, giveToLab(host(s.dir)))
}

// accounted counts the jobs of a run on each of the two clusters.
func accounted(t *testing.T, s *site, runID string) (first, second int) {
	t.Helper()
	name := s.story(runID).JobName
	const line = `SLURM_CONF=$2 sacct -nX -S now-1hour --name "$1" -o JobID | grep -c . || true`
	for conf, n := range map[string]*int{"/etc/slurm/slurm.conf": &first, "/etc/slurm-beside/slurm.conf": &second} {
		if _, err := fmt.Sscan(shell(t, "lab", line, name, conf), n); err != nil {
			t.Fatal(err)
		}
	}
	return first, second
}

type sited struct {
	submitted
	Site string `json:"site"`
}

// One gateway serves two clusters side by side: runs go where their callers say or policy picks, and stay there; while
// the second cluster's slurmctld is stopped the first one's runs succeed, and waiting runs continue by themselves; a
// restart loses nothing of either.
//
// proves SITE-07 ABI-18
func TestTwoClusters(t *testing.T) {
	s, second := twoClusters(t)
	d := s.serve()
	submit := func(site, word string) sited {
		t.Helper()
		doc := probePlan("write", "out/result", word)
		if site != "" {
			s.set(doc, "placement.site", site)
		}
		var a sited
		s.ok(&a, "submit", s.plan(doc))
		return a
	}
	succeeds := func(a sited, on string) {
		t.Helper()
		if l := s.wait(a.RunID); l.State != "succeeded" || a.Site != on {
			t.Fatalf("on %s: %v, want it succeeded on %s", a.Site, l, on)
		}
		var n, m int
		until(t, "a job of "+a.RunID+" in accounting", func() bool { // slurmctld may report to slurmdbd some seconds late
			n, m = accounted(t, s, a.RunID)
			return n+m > 0
		})
		if want := map[string][2]int{"first": {1, 0}, "second": {0, 1}}[on]; [2]int{n, m} != want {
			t.Errorf("%s has %d jobs on the first cluster and %d on the second", a.RunID, n, m)
		}
	}

	unnamed, named := submit("", "unnamed"), submit("second", "named")
	succeeds(unnamed, "first")
	succeeds(named, "second")
	for _, x := range []struct {
		site, word string
		is         sited
	}{{"", "unnamed", unnamed}, {"first", "unnamed", unnamed}, {"second", "named", named}, {"", "named", named}} {
		if a := submit(x.site, x.word); a.RunID != x.is.RunID || !a.Replayed || a.Site != x.is.Site {
			t.Errorf("the same request with the site %q gives %v on %s, want a replay of %s on %s", x.site,
				a.submitted, a.Site, x.is.RunID, x.is.Site)
		}
	}
	other := submit("second", "unnamed")
	if other.RunID == unnamed.RunID || !slices.Equal(other.EquivalentRuns, []string{unnamed.RunID}) {
		t.Errorf("the same plan on the second cluster gives %v, equivalent to %v; want another run, equivalent to %s",
			other.submitted, other.EquivalentRuns, unnamed.RunID)
	}
	succeeds(other, "second")
	bad := s.fails(2, "submit", s.plan(s.set(probePlan("write", "out/result", "x"), "placement.site", "thrid")))
	if len(bad.Details.Problems) != 1 || !strings.Contains(bad.Details.Problems[0].Rule, "first, second") {
		t.Errorf("a plan for an unknown site fails with %v %+v, want a problem that lists the sites", bad,
			bad.Details.Problems)
	}

	running := func(site, word string) sited {
		t.Helper()
		var a sited
		s.ok(&a, "submit", s.plan(s.set(probePlan("await", "out/"+word, "out/result"), "placement.site", site)))
		until(t, "start of "+a.RunID, func() bool {
			_, err := os.Lstat(host(s.dir) + "/runs-" + site + "/" + a.RunID + "/a1/out/started")
			return err == nil
		})
		return a
	}
	release := func(site, word string, a sited) {
		t.Helper()
		shell(t, "lab", `touch "$1/$2/a1/out/$3"`, s.dir+"/runs-"+site, a.RunID, word)
		succeeds(a, site)
	}
	onFirst, onSecond := running("first", "go"), running("second", "go")

	// The gateway is killed while jobs run on both.
	d.signal("KILL")
	d.ended(t)
	d = s.serve()
	release("first", "go", onFirst)
	release("second", "go", onSecond)

	// Slurm's commands and the workspaces of the second cluster are missing when the gateway starts.
	onSecond = running("second", "again")
	d.signal("TERM")
	d.ended(t)
	away := []string{s.dir + "/bin-second", s.dir + "/runs-second"}
	for _, folder := range away {
		shell(t, "lab", `mv "$1" "$1.away"`, folder)
	}
	d = s.serve()
	succeeds(submit("first", "beside a broken one"), "first")
	var l looked
	if s.ok(&l, "get", onSecond.RunID); l.State != "queued" && l.State != "running" || len(l.Warnings) == 0 {
		t.Errorf("a run on a cluster that is away: %v, warnings %q; want it open, with a warning", l, l.Warnings)
	}
	for _, folder := range away {
		shell(t, "lab", `mv "$1.away" "$1"`, folder)
	}
	release("second", "again", onSecond)

	// The second cluster's controller stops.
	second("devd", "stop", "slurmctld")
	waits := submit("second", "waits")
	if l := s.phase(waits.RunID, "deferred"); !strings.Contains(l.why(), "slurm_unreachable") {
		t.Errorf("a run for a cluster whose controller is stopped: %v, want it deferred for slurm_unreachable", l)
	}
	if at := s.siteRows()["second"]; at.State != "away" || at.Since == nil || at.Code != "slurm_unreachable" || len(at.Runs) == 0 {
		t.Errorf("sites reports %+v for the cluster whose controller is stopped, want it away for slurm_unreachable",
			at)
	}

	// Both clusters have runs in flight when the gateway is restarted, and the second's controller is still away.
	inFlight := submit("first", "in flight")
	d.signal("TERM")
	d.ended(t)
	d = s.serve()
	// A run of the first cluster ends while the other one's waits; then the waiting one continues.
	succeeds(inFlight, "first")
	succeeds(submit("first", "restarted"), "first")
	if s.ok(&l, "get", waits.RunID); l.Phase != "deferred" && l.Phase != "submitting" { // being tried again
		t.Errorf("while its cluster is away %v, want it deferred", l)
	}
	second("devd", "start", "slurmctld")
	succeeds(waits, "second")
	for name, at := range s.siteRows() {
		if at.State != "ready" || at.Since != nil || at.Budget != nil && (at.Budget.Left > at.Budget.Burst || at.Budget.PerMinute == 0) {
			t.Errorf("sites reports for %s %+v, want it ready", name, at)
		}
	}

	// Policy picks the other one.
	d.signal("TERM")
	d.ended(t)
	s.replace("domain/policies.yaml", "version: 1\n", "version: 1\nsites: {prefer: [second, first]}\n")
	d = s.serve()
	succeeds(submit("", "by policy"), "second")
	for _, line := range []string{"first", "second"} {
		if r := s.cli("runs", "list"); !strings.Contains(string(r.stdout), "  "+line+"  ") {
			t.Errorf("%v, want the site %s", r, line)
		}
	}
	// What is about the site file is about both clusters.
	s.replace("domain/policies.yaml", "accounts_allowlist: [research, nobodys]", "accounts_allowlist: [research]")
	for line, wants := range map[string][]string{"doctor --no-jobs": {"\nfirst\n", "\nsecond\n", "runs-second"},
		"config check": {"first, second"},
		"config show":  {"site: first\n", "site: second\n"}, "image list": {"probe  sha256:"}, "gc --dry-run": {"workspaces"}} {
		r := s.cli(strings.Fields(line)...)
		for _, want := range wants {
			if r.code != 0 || !strings.Contains("\n"+string(r.stdout), want) {
				t.Errorf("%q is not in %v", want, r)
			}
		}
	}
	s.ok(nil, "events", "verify")
}

type siteRow struct {
	Site      string           `json:"site"`
	Transport string           `json:"transport"`
	State     string           `json:"state"`
	Since     *time.Time       `json:"since"`
	Code      string           `json:"code"`
	Runs      map[string]int64 `json:"runs"`
	Partition string           `json:"default_partition"`
	Budget    *struct {
		PerMinute int `json:"per_minute"`
		Left      int `json:"left"`
		Burst     int `json:"burst"`
		Shared    *struct {
			PerMinute int    `json:"per_minute"`
			Left      int    `json:"left"`
			Problem   string `json:"problem"`
		} `json:"shared"`
	} `json:"budget"`
}

// siteRows returns the output of the verb sites, by site.
func (s *site) siteRows() map[string]siteRow {
	s.t.Helper()
	var l struct {
		Sites []siteRow `json:"sites"`
	}
	s.ok(&l, "sites")
	out := map[string]siteRow{}
	for _, r := range l.Sites {
		out[r.Site] = r
	}
	return out
}

// nearAndFar makes a site file for the cluster of these tests, "near", on whose login node the gateway runs, and for a second one, "far",
// that it reaches over SSH and SFTP alone.
func nearAndFar(t *testing.T) (s *site, onFar func(argv ...string)) {
	t.Helper()
	name := world.cluster + "-c"
	must(t, command("scripts/devcluster", "--name", name, "up", "--beside", world.cluster, "--ssh"))
	t.Cleanup(func() { must(t, command("scripts/devcluster", "--name", name, "down")) })
	onFar = func(argv ...string) {
		t.Helper()
		must(t, command(append([]string{"scripts/devcluster", "--name", name, "exec", "--"}, argv...)...))
	}
	h := sshOfCluster(t, name)
	s = newSite(t, "probing")
	known := value(os.ReadFile(h.KnownHosts))(t)
	var lines []string
	for line := range strings.Lines(string(known)) {
		if hosts, key, _ := strings.Cut(line, " "); strings.Contains(hosts, "login") {
			lines = append(lines, farAddress+" "+key)
		}
	}
	must(t, os.WriteFile(host(s.dir)+"/known_hosts", []byte(strings.Join(lines, "")), 0o644))
	key := value(os.ReadFile(h.Key))(t)
	must(t, os.WriteFile(host(s.dir)+"/key", key, 0o600))
	s.divide("near", "far", "  transport: cli\n", fmt.Sprintf("  transport: ssh\n  ssh: {host: %s, user: lab, key: %s/key, "+
		"known_hosts: [%[2]s/known_hosts]}\n", farAddress, s.dir), "storage:\n", "storage:\n  transport: sftp\n")
	return s, onFar
}

// farAddress is the address of a cluster's login node as the neighbouring cluster sees it.
const farAddress = "10.54.0.2"

// One gateway has a local cluster and one that it reaches over SSH and SFTP. While the far one's sshd is down, runs for
// it wait, policy picks the other one, whose runs continue one after the other, and the far one's runs continue when it
// is back.
//
// proves SITE-07 SITE-01
func TestTwoTransports(t *testing.T) {
	s, onFar := nearAndFar(t)
	onFar("devd", "restart", "sshd", "-o", "ListenAddress="+farAddress)
	s.replace("domain/policies.yaml", "version: 1\n", "version: 1\nsites: {prefer: [far, near], pick: first_that_fits}\n")
	s.serve()
	submit := func(doc tree) sited {
		t.Helper()
		var a sited
		s.ok(&a, "submit", s.plan(doc))
		return a
	}
	succeeds := func(a sited, on string) {
		t.Helper()
		if l := s.wait(a.RunID); l.State != "succeeded" || a.Site != on {
			t.Fatalf("on %s: %v, want it succeeded on %s", a.Site, l, on)
		}
	}
	writes := func(word string) tree { return probePlan("write", "out/result", word) }
	over := submit(writes("over ssh"))
	succeeds(over, "far")
	if l := s.wait(over.RunID); string(s.bytesOf(l.Roles["result"])) != "over ssh" {
		t.Errorf("the run over SSH: %v, want its own output", l)
	}
	if r := s.siteRows()["far"]; r.Transport != "ssh" || r.State != "ready" {
		t.Errorf("sites reports for far %+v, want ssh and ready", r)
	}
	under := submit(probePlan("await", "out/go", "out/result"))
	until(t, "start of "+under.RunID, func() bool {
		_, err := os.Lstat(host(s.dir) + "/runs-far/" + under.RunID + "/a1/out/started")
		return err == nil
	})

	onFar("devd", "restart", "sshd", "-o", "ListenAddress="+farAddress, "-o", "AllowUsers=nobody") // no connection is made again
	onFar("devd", "cut", "sshd")
	onFar("devd", "stop", "sshd")
	waits := submit(s.set(writes("waits"), "placement.site", "far"))
	until(t, "far to be away", func() bool { return s.siteRows()["far"].State == "away" })
	if r := s.cli("submit", s.plan(writes("picked")), "--dry-run"); r.code != 0 || !strings.Contains(string(r.stdout),
		"site    near  (policy first_that_fits: the run fits)\nnot on  far: the run fits and would wait: the site is away (") {
		t.Errorf("%v, want near, and why not far", r)
	}
	succeeds(submit(writes("picked")), "near")
	for n := range 3 {
		succeeds(submit(s.set(writes(fmt.Sprint("near ", n)), "placement.site", "near")), "near")
	}
	for _, a := range []sited{under, waits} { // all of the near cluster's have ended by now
		var l looked
		if s.ok(&l, "get", a.RunID); l.State != "queued" && l.State != "running" || a.Site != "far" {
			t.Errorf("while far is away: %v on %s, want it open on far", l, a.Site)
		}
	}

	onFar("devd", "start", "sshd", "-o", "ListenAddress="+farAddress)
	shell(t, "lab", `touch "$1/$2/a1/out/go"`, s.dir+"/runs-far", under.RunID)
	succeeds(under, "far")
	succeeds(waits, "far")
	for _, a := range []sited{over, under, waits} {
		if n, m := accounted(t, s, a.RunID); n != 0 || m != 1 {
			t.Errorf("%s has %d jobs on the near cluster and %d on the far one", a.RunID, n, m)
		}
	}
}
