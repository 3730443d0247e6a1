package adapter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/toolpack"
)

// The entries and schema files that are printed for chosen tools make a domain that loads, and whose worker answers by
// its schemas.
// proves ARC-10
func TestEntries(t *testing.T) {
	b := adapt(t, "upstream: {url: \""+newUpstream().overHTTP(t, nil).URL+"\"}\nbase_url: http://adapter:9100\n", nil).pin()
	b.config.Tools = []Tool{{"sum", "up.sum"}, {"media", "up.media"}}
	tools, err := b.client.Tools(t.Context())
	must(t, err)
	entries, files, err := b.config.Entries(tools)
	must(t, err)
	files["manifest.yaml"] = []byte("domain_id: up\nversion: 1.0.0\ntools:\n" + entries)
	files["policies.yaml"] = []byte("version: 1\n")
	dir := t.TempDir()
	for name, data := range files {
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(t, os.WriteFile(file, data, 0o600))
	}
	d, err := toolpack.OpenDomain(dir, func(string, []byte) error { return nil })
	if err != nil {
		t.Fatal(err, "\n", entries)
	}
	for _, s := range d.Services() {
		tool := strings.TrimPrefix(s.ID, "up.")
		if s.URL != "http://adapter:9100/"+s.ID+"/"+b.digests[tool] || s.Description != "Does "+tool+"." {
			t.Errorf("service %+v", s)
		}
		input := map[string]string{"up.sum": `{"a":1,"b":2}`, "up.media": `{}`}[s.ID]
		out, err := b.call(tool, input, long)
		if err == nil {
			err = s.Contract().CheckOutput(out)
		}
		if err != nil {
			t.Errorf("%s: %s %v", s.ID, out, err)
		}
	}
	if err := d.Services()[0].Contract().CheckOutput([]byte(`{"text":"3","structured":{"sum":"3"}}`)); !fault.Is(err, fault.Tool) {
		t.Error(err)
	}
	b.config.Tools = []Tool{{"summ", "up.sum"}}
	if _, _, err := b.config.Entries(tools); !fault.Is(err, fault.NotFound) ||
		!strings.Contains(err.Error(), "env, exit, fail, media, slow, sum") {
		t.Error(err)
	}
}
