package toolpack

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy"
)

const (
	manifestText = "domain_id: demo\nversion: 1.0.0\ntools:\n  - {tool_id: demo.count, kind: job_worker}\n"
	lockText     = "version: 1\nimages:\n  - name: counter\n    digest: " +
		"sha256:0000000000000000000000000000000000000000000000000000000000000000\n    arch: amd64\n    size_bytes: 9\n    source: a file\n    " +
		"added_at: 2026-01-02T03:04:05Z\n"
)

func domainDir(t testing.TB, change map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{ManifestFile: manifestText, PolicyFileName: "version: 1\n", LockFile: lockText, PacksDir + "/a.tool.yaml": base}
	for name, text := range change {
		files[name] = text
	}
	for name, text := range files {
		if text != "" {
			write(t, dir, name, text)
		}
	}
	return dir
}

func TestDomain(t *testing.T) {
	dir := domainDir(t, nil)
	d, err := openDir(dir)
	must(t, err)
	file, pol := d.Policy()
	img, ok := d.Lock().Lookup("counter")
	got := fmt.Sprint(d.ID(), " ", d.Version(), " ", filepath.Base(file), " ", string(pol), len(d.Packs().List()), " ", img.Arch, " ",
		img.AddedAt, ok, " ", d.Lock().NameOf(img.Digest), " ", d.Tools()[0].TimeoutSec, " ", d.Tools()[0].Kind)
	if want := "demo 1.0.0 policies.yaml version: 1\n1 amd64 2026-01-02 03:04:05 +0000 UTC true counter 60 job_worker"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	again, err := openDir(dir)
	if err != nil || again.CatalogVersion() != d.CatalogVersion() {
		t.Error("the catalogue's version varies", err)
	}
}

// A service's entry has all that the source's has; endpoint and timeout have defaults.
//
// proves AX-09
func TestManifestEntries(t *testing.T) {
	for text, want := range map[string]ManifestTool{
		`{tool_id: demo.ask, kind: service_worker, timeout_sec: 90, transport: {type: http, base_url: "http://h", endpoint: /ask}, egress_allowlist: ["api.example.org:443", "[::1]:80"]}`: {
			ToolID: "demo.ask", Kind: ServiceWorker, TimeoutSec: 90, Transport: &Transport{"http", "http://h", "/ask"},
			EgressAllowlist: []string{"api.example.org:443", "[::1]:80"}},
		`{tool_id: demo.ask, kind: service_worker, transport: {type: http, base_url: "http://h"}}`: {
			ToolID: "demo.ask", Kind: ServiceWorker, TimeoutSec: 60, Transport: &Transport{"http", "http://h", "/ask"}},
	} {
		d, err := openDir(domainDir(t, map[string]string{ManifestFile: manifestText + "  - " + text + "\n",
			PacksDir + "/b.tool.yaml": askPack("execution: {kind: http, url: \"http://h/ask\"}\n")}))
		if err != nil {
			t.Fatal(text, err)
		}
		if diff := cmp.Diff(want, d.Tools()[1], cmpopts.IgnoreUnexported(ManifestTool{})); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
		if job := d.Tools()[0]; job.TimeoutSec != 60 || job.Transport != nil || job.EgressAllowlist != nil {
			t.Errorf("the job's entry has the timeout %d s, transport %v, egress %q; want 60 and neither", job.TimeoutSec,
				job.Transport, job.EgressAllowlist)
		}
	}
}

// The catalogue's version changes with every file that the catalogue shows.
func TestCatalogVersion(t *testing.T) {
	version := func(change map[string]string) string {
		t.Helper()
		d, err := openDir(domainDir(t, change))
		must(t, err)
		return d.CatalogVersion()
	}
	seen := map[string]string{version(nil): "nothing"}
	for name, change := range map[string]map[string]string{
		"a pack's words":        {PacksDir + "/a.tool.yaml": with(t, "Counts.", "Counts words.")},
		"a pack's capabilities": {PacksDir + "/a.tool.yaml": with(t, "deterministic:", "capabilities: [text.count]\ndeterministic:")},
		"a pack's timeout":      {PacksDir + "/a.tool.yaml": with(t, "timeoutMs: 60000", "timeoutMs: 61000")},
		"the manifest's words":  {ManifestFile: strings.Replace(manifestText, "tools:", "description: Others.\ntools:", 1)},
		"an image":              {LockFile: strings.Replace(lockText, "sha256:0", "sha256:1", 1)},
	} {
		v := version(change)
		if other, dup := seen[v]; dup {
			t.Errorf("%s and %s: %s", name, other, v)
		}
		seen[v] = name
	}
}

// Anything wrong anywhere, and there is no domain. proves ABI-01 AX-02 AX-07 AX-09
func TestDomainFailsClosed(t *testing.T) {
	tool := func(s string) map[string]string {
		return map[string]string{ManifestFile: strings.Replace(manifestText, "{tool_id: demo.count, kind: job_worker}", s, 1)}
	}
	for _, c := range []struct {
		name   string
		change map[string]string
		want   string
	}{
		{"no manifest", map[string]string{ManifestFile: ""}, "manifest.yaml:0 DOMAIN-FILE , toolpacks/a.tool.yaml:1 PACK-UNLISTED id"},
		{"no policy", map[string]string{PolicyFileName: ""}, "policies.yaml:0 DOMAIN-FILE "},
		{"no lock", map[string]string{LockFile: ""}, "images.lock.yaml:0 DOMAIN-FILE "},
		{"image not locked", map[string]string{LockFile: "version: 1\nimages: []\n"},
			"toolpacks/a.tool.yaml:23 PACK-IMAGE-MISSING container.image"},
		{"unlisted pack", map[string]string{ManifestFile: "domain_id: demo\nversion: 1.0.0\ntools: []\n"},
			"toolpacks/a.tool.yaml:1 PACK-UNLISTED id"},
		{"listed and missing", tool("{tool_id: demo.count, kind: job_worker}\n  - {tool_id: gone.tool, kind: job_worker}"),
			"manifest.yaml:5 MANIFEST-TOOL-MISSING tools[1].tool_id"},
		{"listed twice", tool("{tool_id: demo.count, kind: job_worker}\n  - {tool_id: demo.count, kind: job_worker}"),
			"manifest.yaml:5 MANIFEST-DUPLICATE-TOOL tools[1].tool_id"},
		{"kind unknown", tool("{tool_id: demo.count, kind: cron}"), "manifest.yaml:4 MANIFEST-KIND tools[0].kind"},
		{"kind does not fit", tool("{tool_id: demo.count, kind: service_worker, transport: {type: http, base_url: \"http://h:1\"}}"),
			"manifest.yaml:4 MANIFEST-KIND tools[0].kind"},
		{"transport of a job", tool("{tool_id: demo.count, kind: job_worker, transport: {type: http, base_url: \"http://h:1\"}}"),
			"manifest.yaml:4 MANIFEST-TRANSPORT tools[0].transport"},
		{"timeout too short", tool("{tool_id: demo.count, kind: job_worker, timeout_sec: 59}"),
			"manifest.yaml:4 MANIFEST-TIMEOUT tools[0].timeout_sec"},
		{"timeout the runs do not have", tool("{tool_id: demo.count, kind: job_worker, timeout_sec: 61}"),
			"manifest.yaml:4 MANIFEST-TIMEOUT tools[0].timeout_sec"},
		{"egress", tool("{tool_id: demo.count, kind: hybrid, transport: {type: http, base_url: \"http://h:1\"}, egress_allowlist: " +
			"[example.org]}"), "manifest.yaml:4 MANIFEST-EGRESS tools[0].egress_allowlist[0]"},
		{"egress of a job", tool("{tool_id: demo.count, kind: job_worker, egress_allowlist: [\"example.org:443\"]}"),
			"manifest.yaml:4 MANIFEST-EGRESS tools[0].egress_allowlist"},
		{"no host", tool("{tool_id: demo.count, kind: hybrid, transport: {type: http, base_url: \"http://:80\"}}"),
			"manifest.yaml:4 MANIFEST-TRANSPORT tools[0].transport.base_url"},
		{"no such port", tool("{tool_id: demo.count, kind: hybrid, transport: {type: http, base_url: \"http://h:65536\"}}"),
			"manifest.yaml:4 MANIFEST-TRANSPORT tools[0].transport.base_url"},
		{"other transport", tool("{tool_id: demo.count, kind: hybrid, transport: {type: grpc, base_url: \"http://h:1\"}}"),
			"manifest.yaml:4 MANIFEST-TRANSPORT tools[0].transport.type"},
		{"no path", tool("{tool_id: demo.count, kind: hybrid, transport: {type: http, base_url: \"http://h:1\", endpoint: run}}"),
			"manifest.yaml:4 MANIFEST-TRANSPORT tools[0].transport.endpoint"},
		{"unknown key", tool("{tool_id: demo.count, kind: job_worker, colour: red}"), "manifest.yaml:4 MANIFEST-UNKNOWN-FIELD tools[0].colour"},
		{"domain id", map[string]string{ManifestFile: strings.Replace(manifestText, "demo\n", "De Mo\n", 1)},
			"manifest.yaml:1 MANIFEST-DOMAIN-ID domain_id"},
		{"domain version", map[string]string{ManifestFile: strings.Replace(manifestText, "1.0.0", "1.0", 1)},
			"manifest.yaml:2 MANIFEST-TYPE version"},
		{"known type again", map[string]string{ManifestFile: manifestText + "artifact_types: [BAM]\n"},
			"manifest.yaml:5 MANIFEST-TYPE artifact_types[0]"},
		{"lock digest", map[string]string{LockFile: strings.Replace(lockText, "sha256:0", "sha256:x", 1)},
			"images.lock.yaml:4 LOCK-DIGEST images[0].digest"},
		{"lock twice", map[string]string{LockFile: lockText + strings.TrimPrefix(lockText, "version: 1\nimages:\n")},
			"images.lock.yaml:9 LOCK-DUPLICATE-NAME images[1].name"},
		{"lock version", map[string]string{LockFile: strings.Replace(lockText, "version: 1", "version: 2", 1)},
			"images.lock.yaml:1 LOCK-RANGE version"},
		{"lock time", map[string]string{LockFile: strings.Replace(lockText, "2026-01-02T03:04:05Z", "today", 1)},
			"images.lock.yaml:8 LOCK-TIME images[0].added_at"},
		{"everything at once", map[string]string{LockFile: "version: 2\nimages: []\n", ManifestFile: strings.Replace(manifestText, "1.0.0", "x",
			1), PacksDir + "/a.tool.yaml": with(t, "1.2.3", "one")},
			"images.lock.yaml:1 LOCK-RANGE version, manifest.yaml:2 MANIFEST-VERSION version, toolpacks/a.tool.yaml:2 PACK-VERSION version"},
	} {
		dir := domainDir(t, c.change)
		_, err := openDir(dir)
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			rel, _ := filepath.Rel(dir, p.File)
			got = append(got, fmt.Sprintf("%s:%d %s %s", rel, p.Line, p.Code, p.Field))
		}
		if s := strings.Join(got, ", "); s != c.want || !fault.Is(err, fault.Validation) {
			t.Errorf("%s:\ngot  %s\nwant %s\n%v", c.name, s, c.want, err)
		}
	}
}

// The verb that adds images opens a domain that lacks them; for all other verbs the error names the images to add.
func TestMissingImages(t *testing.T) {
	dir := domainDir(t, map[string]string{LockFile: "version: 1\nimages: []\n"})
	if _, err := openDir(dir); !strings.Contains(err.Error(), "image add name=counter") {
		t.Error(err)
	}
	if _, err := openDir(dir, AllowMissingImages); err != nil {
		t.Error(err)
	}
	if _, err := openDir(filepath.Join(dir, "gone")); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// A tool whose image the manifest calls optional is left out while the lock lacks that image; any other missing image stops the gateway.
//
// proves ABI-01
func TestOptionalImages(t *testing.T) {
	none := "version: 1\nimages: []\n"
	optional := strings.Replace(manifestText, "tools:", "optional_images: [counter]\ntools:", 1)
	d, err := openDir(domainDir(t, map[string]string{LockFile: none, ManifestFile: optional}))
	must(t, err)
	if left := d.Left(); len(d.Packs().List()) != 0 || len(d.Tools()) != 0 || len(left) != 1 || left[0].ID() != "demo.count" {
		t.Errorf("%d tools, %d left out", len(d.Packs().List()), len(left))
	}
	if d, err = openDir(domainDir(t, map[string]string{ManifestFile: optional})); err != nil || len(d.Left()) != 0 || len(d.Tools()) != 1 {
		t.Error("with the image", err)
	}
	for _, manifest := range []string{manifestText, strings.Replace(optional, "[counter]", "[other]", 1)} {
		if _, err := openDir(domainDir(t, map[string]string{LockFile: none, ManifestFile: manifest})); fault.CodeOf(err) != "PACK-IMAGE-MISSING" {
			t.Error(err)
		}
	}
	d, err = openDir(domainDir(t, map[string]string{LockFile: none, ManifestFile: optional}), AllowMissingImages)
	if err != nil || len(d.Packs().List()) != 1 || len(d.Left()) != 0 {
		t.Error("for the command that adds images", err)
	}
}

func genomics(t testing.TB) *Domain {
	t.Helper()
	d, err := openDir("../domains/genomics", AllowMissingImages)
	must(t, err)
	return d
}

// The shipped domain loads, and its policy with it. proves AX-02
func TestGenomics(t *testing.T) {
	d := genomics(t)
	var ids []string
	for _, p := range d.Packs().List() {
		ids = append(ids, p.ID())
		if p.Description() == "" || p.Description() != strings.TrimSpace(p.Description()) {
			t.Error(p.ID(), "has no proper description")
		}
	}
	if want := "bcftools.call bcftools.stats bedtools.coverage bedtools.intersect blast.makedb blast.search bwa.index bwa.mem fastp.pairs " +
		"fastp.trim fastqc.report minimap2.align minimap2.map multiqc.report r.pca samtools.faidx samtools.flagstat samtools.index " +
		"samtools.merge samtools.sort samtools.stats seqkit.stats"; strings.Join(ids, " ") != want {
		t.Error(ids)
	}
	file, data := d.Policy()
	pol, err := policy.Parse(file, data, func(string) (string, bool) { return "", false })
	must(t, err)
	for _, p := range d.Packs().List() {
		c := genomicsCall(t, d, p.ID())
		c.Spec.Placement = c.Spec.Placement.Resolve(plan.Placement{Partition: "main", Account: "research"})
		if err := pol.AllowPlan(c.Spec, false, p.Image()); err != nil {
			t.Errorf("the shipped policy forbids the shipped tool %s: %v", p.ID(), err)
		}
	}
}

// Every shipped domain loads, and its policy with it. proves AX-02
func TestShippedDomains(t *testing.T) {
	for _, dir := range shippedDomains(t) {
		d, err := OpenDomain(dir, func(file string, data []byte) error {
			_, err := policy.Parse(file, data, func(string) (string, bool) { return "", false })
			return err
		}, AllowMissingImages)
		if err != nil || len(d.Packs().List())+len(d.Services()) == 0 {
			t.Error(dir, err)
		}
	}
}

func genomicsCall(t testing.TB, d *Domain, id string) Canonical {
	t.Helper()
	p, err := d.Packs().Get(id)
	must(t, err)
	return goldenCall(t, p, "art_", "sample")
}

// What samtools 1.21 writes satisfies the schema; what it never writes does not.
func TestFlagstatOutput(t *testing.T) {
	p, err := genomics(t).Packs().Get("samtools.flagstat")
	must(t, err)
	const head = `{"report":{"artifact_id":"art_183BZJHEYXMKZBB4A0X74BNFSS","type":"JSON","label":"flagstat","size_bytes":1,"checksum_sha256":"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"`
	for value, ok := range map[string]bool{
		`}}`: true,
		`,"value":{"QC-passed reads":{"total":303,"mapped":298,"mapped %":98.35},"QC-failed reads":{"total":0,"mapped":0,"mapped %":null}}}}`: true,
		`,"value":{"QC-passed reads":{"total":303}}}}`: false,
		`,"value":[]}}`:      false,
		`,"extra":1}}`:       false,
		`},"undeclared":{}}`: false,
	} {
		if err := p.Contract().CheckOutput(json.RawMessage(head + value)); (err == nil) != ok {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// The name a plan may give before a digest.
func TestLockCheckName(t *testing.T) {
	a, b := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	l := Lock{images: []LockedImage{{Name: "one", Digest: a}, {Name: "two", Digest: b}, {Name: "uno", Digest: a}}}
	for _, c := range []struct{ name, digest, want string }{{"one", a, ""}, {"uno", a, ""}, {"two", b, ""},
		{"two", a, `"two" is another image; this digest is "one"`},
		{"one", "sha256:" + strings.Repeat("c", 64), `"one" is another image: ` + a}, {"three", a, `images.lock.yaml has no image "three"`}} {
		if got := l.CheckName(c.name, c.digest); got != c.want {
			t.Errorf("%s %s: %q", c.name, c.digest, got)
		}
	}
}

// openDir opens a domain without a check of its policy.
func openDir(dir string, list ...Option) (*Domain, error) {
	return OpenDomain(dir, func(string, []byte) error { return nil }, list...)
}
