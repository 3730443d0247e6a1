package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// placesUnderTest is a gateway whose site has two folders for files in place: own is open to all projects, refs is
// shared with them.
type placesUnderTest struct {
	*Gateway
	t         *testing.T
	own, refs string
}

func newPlaces(t *testing.T, edit ...func(*site.Site)) placesUnderTest {
	t.Helper()
	dir := t.TempDir()
	p := placesUnderTest{t: t, own: filepath.Join(dir, "own"), refs: filepath.Join(dir, "refs")}
	for _, folder := range []string{p.own, p.refs} {
		must(t, os.Mkdir(folder, 0o755))
	}
	edit = append(edit, func(s *site.Site) {
		s.Storage.InPlace = []site.InPlace{{Root: site.Root{Path: p.own, Projects: []string{"*"}}},
			{Root: site.Root{Path: p.refs, Projects: []string{"*"}}, Shared: true}}
	})
	p.Gateway = gatewayOver(t, filepath.Join(dir, "state"), "testdata/demo/domain",
		"version: 1\nslurm: {raw_plans: {allowed: true, entry_programs: {samtools: [samtools]}}}\n", edit...)
	err := p.OpenPlaces(nil, func(s *site.Site) *artifact.ImportPolicy {
		if s.FarFiles() {
			return nil
		}
		here := &artifact.ImportPolicy{}
		for _, f := range s.Storage.InPlace {
			here.Roots = append(here.Roots, artifact.Root{Folder: f.Path, Projects: f.ProjectIDs()})
		}
		return here
	})
	must(t, err)
	return p
}

// memberOf returns a caller with a token for a project.
func memberOf(project, name string) gate.Caller {
	return gate.Caller{Transport: gate.Local, Principal: gate.Principal{ID: "prn_" + name, Name: "token:" + name, Method: gate.ByToken,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapImport, gate.CapSlurm}, []string{plan.ProjectID(project)})}}
}

func (p placesUnderTest) write(path, text string) {
	p.t.Helper()
	must(p.t, os.WriteFile(path, []byte(text), 0o644))
}

// registered returns the artifact of a file that a caller registers in place.
func (p placesUnderTest) registered(who gate.Caller, path string) ArtifactDoc {
	p.t.Helper()
	var a ImportAnswer
	p.says(p.t, who, "artifact.import", map[string]any{"path": path, "in_place": true, "label": "data", "type": "TEXT"}, "", &a)
	return a.ArtifactDoc
}

// input returns where the job of a run by a caller reads an artifact. Different numbers give different runs.
func (p placesUnderTest) input(who gate.Caller, a ArtifactDoc, number int) (run.Placed, error) {
	p.t.Helper()
	image, ok := p.Domain.Lock().Digest("samtools")
	if !ok {
		p.t.Fatal("the domain has no image samtools")
	}
	doc := fmt.Sprintf(`{"job_spec":{"version":1,"resources":{"time_limit_seconds":%d,"cpus":1,"mem_mb":512,"gpus":null,"gpu_type":null},
 "placement":{"partition":"main","account":"research","qos":null,"constraint":null},"execution":{"kind":"container","container":{
 "engine":"apptainer","image":%q,"network_mode":"none","readonly_rootfs":true},"command":{"argv":["samtools","view","/work/in/data"],
 "workdir":"/work","env":{}}},"io":{"inputs":[{"role":"data","artifact_id":%q,"checksum_sha256":%q,"dest_relpath":"in/data"}],
 "outputs":[{"role":"report","src_relpath":"out/report.txt","type":"TEXT","label":"report.txt"}]}}}`, 60+number, image, a.ArtifactID,
		a.ChecksumSHA256)
	var r run.SubmitAnswer
	p.says(p.t, who, "slurm.submit", json.RawMessage(doc), "", &r)
	v, err := p.Ledger.View(p.t.Context(), r.RunID)
	must(p.t, err)
	list, err := p.Placing(p.Site.Clusters()[0])(p.t.Context(), v.Run, []plan.Input{{Role: "data", ChecksumSHA256: a.ChecksumSHA256,
		DestRelpath: "in/data"}})
	if err != nil {
		return run.Placed{}, err
	}
	return list[0], nil
}

// A registered file belongs to the caller that registered it: the runs of another project, and of a caller who
// registered the same artifact, read their own file and never another's, in any order of registration. In a folder
// that the site shares one registration serves all.
//
// proves DATA-05 ARC-02
func TestInPlaceBelongsToItsRegistration(t *testing.T) {
	p := newPlaces(t)
	alice, anna, bob := memberOf("a", "alice"), memberOf("a", "anna"), memberOf("b", "bob")
	for _, name := range []string{"alice", "anna", "bob"} {
		p.write(filepath.Join(p.own, name), "the same bytes")
	}
	ofBob := p.registered(bob, p.own+"/bob")
	ofAlice := p.registered(alice, p.own+"/alice")
	if ofAnna := p.registered(anna, p.own+"/anna"); ofAnna.ArtifactID != ofAlice.ArtifactID {
		t.Fatalf("the same bytes in one project are %s and %s, want one artifact", ofAlice.ArtifactID, ofAnna.ArtifactID)
	}
	third := memberOf("a", "third")
	for i, c := range []struct {
		who  gate.Caller
		a    ArtifactDoc
		want string
	}{{bob, ofBob, "/bob"}, {alice, ofAlice, "/alice"}, {anna, ofAlice, "/anna"}, {third, ofAlice, "/alice"}} {
		in, err := p.input(c.who, c.a, i)
		if err != nil || in.Path != p.own+c.want || !in.Recheck {
			t.Errorf("a run of %s reads %q (hashed after the program: %t), %v; want %s", c.who.Name, in.Path, in.Recheck, err, p.own+c.want)
			continue
		}
		if by := "token:" + c.want[1:]; in.Rests.On != run.OnHash || in.Rests.RegisteredBy != by {
			t.Errorf("an input of %s rests on %+v, want %s by %s", c.who.Name, *in.Rests, run.OnHash, by)
		}
	}
	// a changed file of the caller is not replaced by another's
	p.write(p.own+"/bob", "other bytes")
	if in, err := p.input(bob, ofBob, 10); fault.CodeOf(err) != "input_mismatch" {
		t.Errorf("a run whose file was changed reads %q, %v; want input_mismatch", in.Path, err)
	}
	// a shared file serves all, and is not hashed again
	p.write(p.refs+"/genome", "reference bytes")
	genome := p.registered(alice, p.refs+"/genome")
	p.write(p.own+"/copy", "reference bytes")
	ofBob = p.registered(bob, p.own+"/copy")
	must(t, os.Remove(p.own+"/copy"))
	if in, err := p.input(bob, ofBob, 11); err != nil || in.Path != p.refs+"/genome" || in.Recheck {
		t.Errorf("a run of another project reads %q (hashed after the program: %t), %v; want the shared %s/genome", in.Path, in.Recheck, err,
			p.refs)
	}
	if in, err := p.input(alice, genome, 12); err != nil || in.Rests.On != run.OnHashBefore {
		t.Errorf("a shared input rests on %+v, %v; want %s", in.Rests, err, run.OnHashBefore)
	}
	if genome.ChecksumSHA256 != ofBob.ChecksumSHA256 {
		t.Errorf("the two checksums are %s and %s, want one", genome.ChecksumSHA256, ofBob.ChecksumSHA256)
	}
}

// Bytes in place are compared while they are read: a preview, a download, arguments and a verification return no
// bytes that were changed without a change of the file's times.
//
// proves DATA-05
func TestInPlaceIsComparedWhileItIsRead(t *testing.T) {
	p := newPlaces(t)
	alice := memberOf("a", "alice")
	path := p.own + "/data"
	text := strings.Repeat("0123456789abcde\n", 3<<16) // three blocks
	p.write(path, text)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(memory)
	a := p.registered(alice, path)
	about := map[string]any{"artifact_id": a.ArtifactID}
	var shown PreviewAnswer
	p.says(t, alice, "artifact.preview.text", about, "", &shown)
	whole, err := p.Artifact(t.Context(), a.ArtifactID)
	must(t, err)
	defer whole.Close()
	if got, err := io.ReadAll(whole); err != nil || string(got) != text {
		t.Errorf("a download of unchanged bytes gives %d bytes, %v; want %d", len(got), err, len(text))
	}
	memory[2<<20+5] = 'X' // no time on this filesystem shows the change
	if _, err := whole.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(whole)
	if fault.CodeOf(err) != "input_mismatch" || string(got) != text[:2<<20] {
		t.Errorf("a download of changed bytes gives %d bytes, %v; want the %d before the changed block, and input_mismatch", len(got), err, 2<<20)
	}
	var v Verified
	p.says(t, alice, "artifact.verify", about, "", &v)
	if v.DamagedCount != 1 || v.Damaged[0].Code != "input_mismatch" {
		t.Errorf("a verification finds %+v, want one input_mismatch", v.Damaged)
	}
	memory[7] = 'Y'
	p.says(t, alice, "artifact.preview.text", about, "input_mismatch", nil)
	p.says(t, alice, "artifact.preview.table", about, "input_mismatch", nil)
}

// asUsers holds files on a cluster that are read with the rights of a user's login.
type asUsers struct {
	FarPlaces
	readable map[string]string // by user and path: the bytes
}

func (x asUsers) Look(_ context.Context, _ *site.Site, user, _, path string) (string, int64, error) {
	text, ok := x.readable[user+" "+path]
	if !ok {
		return "", 0, fault.New(fault.Policy, artifact.ImportAccess, path+" is not readable by "+user)
	}
	return "state", int64(len(text)), nil
}

func (x asUsers) Hash(_ context.Context, _ *site.Site, user, _, path, _ string) (string, int64, error) {
	text := x.readable[user+" "+path]
	return strings.TrimPrefix(plan.Hash([]byte(text)), "sha256:"), int64(len(text)), nil
}

// A path that a call names is opened with the rights of its caller, in every operation: a local user passes an open
// file, and where jobs run as their callers the caller's own login opens it. The gateway's own rights are used in
// folders that the site shares, and for callers without a Unix user.
//
// proves ARC-02 SITE-08
func TestPathsAreOpenedWithTheCallersRights(t *testing.T) {
	p := newPlaces(t)
	secret, folder := p.own+"/secret", p.own+"/folder"
	p.write(secret, "what only the gateway's user can read")
	must(t, os.Mkdir(folder, 0o700))
	p.write(folder+"/file", "in a closed folder")
	p.write(p.own+"/other", "of the caller")
	p.write(p.refs+"/genome", "offered")
	for path, mode := range map[string]os.FileMode{secret: 0o600, p.refs + "/genome": 0o600} {
		must(t, os.Chmod(path, mode))
	}
	all := []string{plan.ProjectID("a")}
	peer := gate.Caller{Transport: gate.Local, Principal: gate.Principal{ID: "prn_peer", Name: "user:bob", Method: gate.ByPeer, PeerUID: 1002,
		UnixUser: "bob", Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}}
	token := memberOf("a", "token")
	mapped := memberOf("a", "alice")
	mapped.UnixUser = "alice"
	handing := func(who gate.Caller, path string) gate.Caller {
		f, err := os.Open(path)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		who.File = f
		return who
	}
	type args = map[string]any
	place := func(path, typ string) args {
		return args{"path": path, "in_place": true, "type": typ, "project_id": all[0]}
	}
	reference := func(name, path string) args { return args{"name": name, "path": path, "type": "TEXT"} }
	for _, c := range []struct {
		about   string
		callers bool // jobs run as their callers
		who     gate.Caller
		tool    string
		args    args
		want    string
	}{
		{"a local user names a file", false, peer, "artifact.import", place(secret, "TEXT"), "IMPORT-HANDED"},
		{"a local user names a folder", false, peer, "artifact.import", place(folder, plan.Directory), "IMPORT-HANDED"},
		{"a local user names a file in a closed folder", false, peer, "artifact.import", place(folder+"/file", "TEXT"), "IMPORT-HANDED"},
		{"a local user passes another file", false, handing(peer, p.own+"/other"), "artifact.import", place(secret, "TEXT"), "IMPORT-HANDED"},
		{"a local user passes the file", false, handing(peer, secret), "artifact.import", place(secret, "TEXT"), ""},
		{"a local user names a file for a copy", false, peer, "artifact.import", args{"path": secret, "project_id": all[0]}, "IMPORT-HANDED"},
		{"a token names a file", false, token, "artifact.import", place(p.own+"/other", "TEXT"), ""},
		{"a local user names a shared file", false, peer, "artifact.import", place(p.refs+"/genome", "TEXT"), ""},
		{"a reference outside of shared folders", false, peer, "reference.add", reference("x", secret), "REFERENCE-SHARED"},
		{"a reference that a job hashes", false, peer, "reference.add", args{"name": "x", "path": folder, "type": plan.Directory, "by_job": true},
			"REFERENCE-SHARED"},
		{"a reference to an artifact in place", false, peer, "reference.add", args{"name": "x", "artifact_id": "of the file"},
			"reference_in_place"},
		{"a reference in a shared folder", false, peer, "reference.add", reference("genome", p.refs+"/genome"), ""},
		{"a caller whose login cannot read it", true, peer, "artifact.import", place(secret, "TEXT"), artifact.ImportAccess},
		{"a caller whose login cannot read the folder", true, peer, "artifact.import", place(folder, plan.Directory), artifact.ImportAccess},
		{"a token without a user", true, token, "artifact.import", place(secret, "TEXT"), "no_unix_user"},
		{"a caller whose login can read it", true, mapped, "artifact.import", place("/home/of/alice", "TEXT"), "IMPORT-ROOT"},
		{"a caller whose login can read it, below the folder", true, mapped, "artifact.import", place(p.own+"/of-alice", "TEXT"), ""},
	} {
		if p.UnixUser = nil; c.callers {
			p.asCallers("alice", "bob")
			p.FarPlaces = asUsers{readable: map[string]string{"alice " + p.own + "/of-alice": "hers"}}
		}
		if c.args["artifact_id"] != nil {
			list, err := p.Ledger.Places(t.Context(), strings.TrimPrefix(plan.Hash([]byte("what only the gateway's user can read")), "sha256:"))
			if err != nil || len(list) != 1 {
				t.Fatalf("the file lies at %+v, %v; want one place", list, err)
			}
			c.args["artifact_id"] = list[0].ArtifactID
		}
		x := p.toolOf(t, c.tool)
		raw, err := plan.Marshal(c.args)
		must(t, err)
		for _, dry := range []bool{true, false} {
			req := gate.NewRequest(x.ID, x.Version, raw)
			if req.DryRun = dry; dry && x.DryRun == nil {
				continue
			}
			code := ""
			if res := p.Gate.Call(t.Context(), c.who, req); res.Error != nil {
				code = res.Error.Code
			}
			if code != c.want {
				t.Errorf("%s (%s, dry run: %t): %q, want %q", c.about, c.tool, dry, code, c.want)
			}
		}
	}
	// what a user's login hashed is that user's: the gateway reads none of it
	list, err := p.Ledger.Places(t.Context(), strings.TrimPrefix(plan.Hash([]byte("hers")), "sha256:"))
	if err != nil || len(list) != 1 || list[0].OpenedAs != "alice" || list[0].Caller != run.UnixCaller("alice") {
		t.Fatalf("the user's file lies at %+v, %v; want one place, hashed as alice", list, err)
	}
	p.says(t, mapped, "artifact.preview.text", args{"artifact_id": list[0].ArtifactID}, "in_place_elsewhere", nil)
}
