package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sylabs/sif/v2/pkg/sif"

	"slurmgate/access"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/site"
)

// siteFile writes a site file for a domain.
func siteFile(t *testing.T, domain, more string) (file, store string) {
	t.Helper()
	dir := t.TempDir()
	file, store = filepath.Join(dir, "site.yaml"), filepath.Join(dir, "images")
	text := fmt.Sprintf("version: 1\nsite: x\ngateway: {state_dir: %s/state%s}\ndomain_dir: %s\nslurm: {default_partition: a, "+
		"default_account: b}\nstorage: {runs_dir: %s/runs, image_store: %s}\n", dir, more, domain, dir, store)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file, store
}

// A lock that is wrong about the files of the site's store is refused by domain check and named by config check and image list.
func TestLockAgainstStore(t *testing.T) {
	domain := copyDomain(t, "genomics")
	file, _ := siteFile(t, domain, "")
	sif := filepath.Join(t.TempDir(), "samtools.sif")
	writeTestSIF(t, sif)
	if code, _, said := verb(t, "--site", file, "image", "add", "samtools", sif); code != 0 {
		t.Fatal(said)
	}
	if code, out, said := verb(t, "--site", file, "domain", "check", domain); code != 0 || strings.Contains(out, "IMAGE") {
		t.Fatal(code, out, said)
	}
	lock := filepath.Join(domain, "images.lock.yaml")
	data := value(os.ReadFile(lock))(t)
	bad := strings.Replace(string(data), "size_bytes: ", "size_bytes: 1", 1)
	must(t, os.WriteFile(lock, []byte(bad), 0o600))
	if code, _, said := verb(t, "--site", file, "domain", "check", domain); code != 2 || !strings.Contains(said,
		"images[0].size_bytes: samtools has ") || !strings.Contains(said, "the lock says 1") {
		t.Error(code, said)
	}
	if code, out, said := verb(t, "--site", file, "config", "check"); code != 0 || !strings.Contains(out, "warning: ") ||
		!strings.Contains(out, "images[0].size_bytes") {
		t.Error(code, out, said)
	}
	if _, out, said := verb(t, "--site", file, "image", "list"); !strings.Contains(out, "not as images.lock.yaml says") {
		t.Error(out, said)
	}
	// Adding the image again puts the entry right.
	if code, _, said := verb(t, "--site", file, "image", "add", "samtools", sif); code != 0 {
		t.Fatal(said)
	}
	prints(t, "", "--site", file, "domain", "check", domain)
}

// image add compares the image with the nodes, not with this host; where Slurm does not report the nodes' architecture,
// it accepts the image and prints so.
func TestImageForTheNodes(t *testing.T) {
	other := map[string]string{"amd64": "aarch64", "arm64": "x86_64"}[runtime.GOARCH]
	same := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for nodes, want := range map[string]struct {
		code int
		says string
	}{
		"Arch=" + same: {0, ""}, "Arch=" + other: {2, "it is built for"}, "Arch=" + other + "\nNodeName=n2 Arch=" + same: {0, ""},
		"Reason=Arch=" + other: {0, "the architecture of shell's nodes is unknown"},
	} {
		s, file := plainSite(t)
		must(t, os.WriteFile(filepath.Join(s.Slurm.BinDir, "scontrol"), []byte("#!/bin/sh\nprintf 'NodeName=n1 "+nodes+"\\n'\n"), 0o755))
		image := filepath.Join(t.TempDir(), "x.sif")
		writeTestSIF(t, image)
		g, err := openGateway(t.Context(), s, toChange, quiet(), nil) // begins the ledger
		must(t, err)
		g.Close()
		code, out, said := verb(t, "--site", file, "image", "add", "x", image)
		if code != want.code || !strings.Contains(out+said, want.says) || want.says == "" && strings.Contains(out, "unknown") {
			t.Errorf("%s: %d %s%s", nodes, code, out, said)
		}
	}
}

// One rule decides the names of projects; every face and file follows it.
func TestProjectNames(t *testing.T) {
	all := gate.Principal{Rights: gate.Everything()}
	id := plan.ProjectID("x")
	for _, name := range []string{"demo", "a b", "Ünï", "proj", "projects", id, strings.Repeat("a", 128), "", " a", "a ", "a  b", "a\nb",
		"proj_", "proj_demo", strings.ToLower(id), strings.Repeat("é", 65), "*"} {
		ok := plan.CheckProject(name) == ""
		if _, err := all.Project(nil, name, "default"); (err == nil) != (ok || name == "") {
			t.Errorf("call: %q %v", name, err)
		}
		if g, err := access.NewGrant([]string{"read"}, []string{name}, nil); (err == nil) != (ok || name == "*") || err == nil && ok &&
			g.Projects[0] != plan.ProjectOf(name) {
			t.Errorf("token, peer: %q %v", name, err)
		}
		if _, err := access.NewGrant([]string{"read"}, []string{"*"}, map[string]string{name: "acct"}); (err == nil) != (ok || name == "*") {
			t.Errorf("account: %q %v", name, err)
		}
		s := site.Site{Version: 1, Name: "x", Gateway: site.Gateway{StateDir: "/state", DefaultProject: name}, DomainDir: "/d",
			Slurm:   site.Slurm{DefaultPartition: "a", DefaultAccount: "b"},
			Storage: site.Storage{RunsDir: "/runs", ImageStore: "/images"}}
		if _, err := site.New(s); (err == nil) != (ok || name == "") { // empty: the default
			t.Errorf("default project: %q %v", name, err)
		}
		s.Gateway.DefaultProject, s.Access.Peers = "", []site.Peer{{User: "u", Accounts: []site.Account{{Project: name, Account: "a"}}}}
		if _, err := site.New(s); (err == nil) != (ok || name == "*") {
			t.Errorf("account of a peer: %q %v", name, err)
		}
	}
	if got, err := all.Project(nil, "", id); err != nil || got != id {
		t.Errorf("a default project given by its id is another: %s %v", got, err)
	}
}

func writeTestSIF(t *testing.T, path string) {
	t.Helper()
	in, err := sif.NewDescriptorInput(sif.DataPartition, strings.NewReader("x"), sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys,
		runtime.GOARCH), sif.OptObjectAlignment(4096))
	must(t, err)
	img := value(sif.CreateContainerAtPath(path, sif.OptCreateDeterministic(), sif.OptCreateWithDescriptors(in)))(t)
	must(t, img.UnloadContainer())
}
