package site

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
)

const (
	mainPart    = "version: 1\nsites: [a.yaml, b.yaml]\ngateway: {state_dir: /var/lib/sg}\ndomain_dir: d\n"
	clusterPart = "version: 1\nsite: %[1]s\nslurm: {default_partition: main, default_account: lab}\n" +
		"storage: {runs_dir: /shared/%[1]s, image_store: /shared/images}\n"
)

// several writes a site file and the files of two clusters, and reads them.
func several(t *testing.T, main, a, b string) (*Site, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"site.yaml": main, "a.yaml": a, "b.yaml": b} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return Load(filepath.Join(dir, "site.yaml"))
}

// Each cluster may have its own file; each has the gateway's part of the site file, and prints only its own settings.
//
// proves SITE-07
func TestSeveralClusters(t *testing.T) {
	s, err := several(t, mainPart, fmt.Sprintf(clusterPart, "alpha"), fmt.Sprintf(clusterPart, "beta")+"budget: {rpc_per_minute: 10}\n")
	must(t, err)
	if !slices.Equal(s.Names(), []string{"alpha", "beta"}) || s.Title() != "alpha, beta" || s.Cluster("gamma") != nil {
		t.Error(s.Names())
	}
	b := s.Cluster("beta")
	if b.Gateway.Socket != "/var/lib/sg/gateway.sock" || b.DomainDir != s.DomainDir || b.Budget.RPCPerMinute != 10 ||
		b.Watch.FloorSeconds != 2 ||
		s.Cluster("alpha").Budget.RPCPerMinute != 60 || filepath.Base(b.File()) != "b.yaml" {
		t.Errorf("beta: socket %s, domain %s, budget %d, floor %d, file %s", b.Gateway.Socket, b.DomainDir, b.Budget.RPCPerMinute,
			b.Watch.FloorSeconds, b.File())
	}
	if l := s.LocalSite(); l.Name != "local" || l.Storage.RunsDir != "/shared/alpha" || s.Clusters()[0].Name != "alpha" {
		t.Errorf("LocalSite: name %s, runs_dir %s; want local, /shared/alpha", l.Name, l.Storage.RunsDir)
	}
	for of, without := range map[*Site]string{s: "slurm:", b: "gateway:"} {
		text, err := of.Effective()
		if err != nil || strings.Contains(string(text), without) {
			t.Errorf("%v\n%s", err, text)
		}
	}
	text, err := s.Effective()
	must(t, err)
	again, err := Parse(filepath.Join(filepath.Dir(s.File()), "site.yaml"), text)
	if err != nil || !slices.Equal(again.Names(), s.Names()) {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, again, ignorePrivate); d != "" {
		t.Error(d)
	}
}

// One file describes one cluster, as before.
func TestOneCluster(t *testing.T) {
	s := parse(t, least)
	if len(s.Clusters()) != 1 || s.Clusters()[0] != s || s.Cluster("tiny") != s || s.Title() != "tiny" {
		t.Error(s.Names())
	}
}

// All problems of all files are reported together, each with its file and line.
func TestProblemsOfSeveralFiles(t *testing.T) {
	alpha, beta := fmt.Sprintf(clusterPart, "alpha"), fmt.Sprintf(clusterPart, "beta")
	for name, x := range map[string]struct {
		main, a, b string
		want       []string // file:line code field
	}{
		"a cluster in the site file": {mainPart + "slurm: {default_partition: main}\nbudget: {rpc_per_minute: 5}\n", alpha, beta,
			[]string{"site.yaml:5 SITE-CLUSTER slurm", "site.yaml:6 SITE-CLUSTER budget"}},
		"the gateway in a cluster's file": {mainPart, alpha + "gateway: {state_dir: /x}\n", beta + "audit: {looks: 2000}\n",
			[]string{"a.yaml:5 SITE-UNKNOWN-FIELD gateway", "b.yaml:5 SITE-UNKNOWN-FIELD audit"}},
		"each file has its own": {mainPart + "audit: {looks: 1}\n", strings.Replace(alpha, "alpha", "Alpha", 1),
			beta + "watch: {floor_seconds: x}\n",
			[]string{"site.yaml:5 SITE-RANGE audit.looks", "a.yaml:2 SITE-NAME site", "b.yaml:5 SITE-TYPE watch.floor_seconds"}},
		"a file that is not there": {strings.Replace(mainPart, "b.yaml", "c.yaml", 1), alpha, beta, []string{"site.yaml:2 SITE-FILE sites[1]"}},
		"one name":                 {mainPart, alpha, strings.Replace(beta, "site: beta", "site: alpha", 1), []string{"b.yaml:2 SITE-NAME site"}},
		"the host's name":          {mainPart, alpha, strings.Replace(beta, "site: beta", "site: local", 1), []string{"b.yaml:2 SITE-NAME site"}},
		"one runs_dir": {mainPart, alpha, strings.Replace(beta, "/shared/beta", "/shared/alpha/x", 1),
			[]string{"b.yaml:4 SITE-PATH-OVERLAP storage.runs_dir"}},
		"runs in state_dir": {mainPart, alpha, strings.Replace(beta, "/shared/beta", "/var/lib/sg/runs", 1),
			[]string{"b.yaml:4 SITE-PATH-OVERLAP storage.runs_dir"}},
		"an empty file":   {mainPart, alpha, "", []string{"b.yaml:1 SITE-YAML "}},
		"files of a file": {mainPart, alpha, beta + "sites: [c.yaml]\n", []string{"b.yaml:5 SITE-UNKNOWN-FIELD sites"}},
	} {
		_, err := several(t, x.main, x.a, x.b)
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			if p.Msg == "" || p.Rule == "" {
				t.Errorf("%s: incomplete: %+v", name, p)
			}
			got = append(got, fmt.Sprintf("%s:%d %s %s", filepath.Base(p.File), p.Line, p.Code, p.Field))
		}
		if d := cmp.Diff(x.want, got); d != "" {
			t.Errorf("%s: %s\n%v", name, d, err)
		}
	}
}
