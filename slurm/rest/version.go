package rest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
)

// version describes a version of slurmrestd's API: what differs between the versions, as data. [versions] lists them
// all.
type version struct {
	name string // as in paths

	kills   bool // DELETE /jobs/ takes jobs, job_name and user_name together
	oomKill bool // jobs have oom_kill_step
}

// versions lists the versions that this program speaks, oldest first. The first came with Slurm 23.11.
var versions = []version{
	{name: "v0.0.40"},
	{name: "v0.0.41", kills: true},
	{name: "v0.0.42", kills: true, oomKill: true},
	{name: "v0.0.43", kills: true, oomKill: true},
	{name: "v0.0.44", kills: true, oomKill: true},
	{name: "v0.0.45", kills: true, oomKill: true},
}

// Versions lists the names of the versions that this program speaks, oldest first.
func Versions() (names []string) {
	for _, v := range versions {
		names = append(names, v.name)
	}
	return names
}

// negotiation holds the version that both sides speak, once it is known.
type negotiation struct {
	wanted string // by the site file; empty: the newest

	asking sync.Mutex // one negotiation at a time
	last   atomic.Pointer[version]
}

// known returns the version in use, or nil if it is not negotiated.
func (n *negotiation) known() *version { return n.last.Load() }

func (n *negotiation) forget() { n.last.Store(nil) }

// maxDocument bounds slurmrestd's OpenAPI document; in bytes. That of 24.11 has 1.6 MB.
const maxDocument = 64 << 20

// NoVersion is the fault code if slurmrestd serves no version that this program speaks, or not the one of the site
// file.
const NoVersion = "rest_version"

// negotiated returns the newest version that both sides speak. slurmrestd is asked once.
func (c *client) negotiated(ctx context.Context) (version, error) {
	c.version.asking.Lock()
	defer c.version.asking.Unlock()
	if v := c.version.known(); v != nil {
		return *v, nil
	}
	served := map[string]bool{}
	_, err := c.call(ctx, request{method: "GET", path: "/openapi/v3", limit: maxDocument, members: members{
		"paths": func(d *jsontext.Decoder) error { return pathVersions(d, served) }}})
	if err != nil {
		return version{}, err
	}
	v, err := newest(c.version.wanted, served)
	if err != nil {
		return v, fault.Wrap(fault.Transport, NoVersion, "slurmrestd at "+c.pool.name+" cannot be used", err).WithNext(
			remedy(c.version.wanted, served))
	}
	c.version.last.Store(&v)
	return v, nil
}

// pathVersions collects the versions in the paths of the calls about slurmctld: /slurm/v0.0.42/ping/.
func pathVersions(d *jsontext.Decoder, served map[string]bool) error {
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.PeekKind() == '"' {
		path, err := d.ReadToken()
		if err != nil {
			return err
		}
		if rest, ok := strings.CutPrefix(path.String(), "/slurm/"); ok && len(served) < 100 {
			name, _, _ := strings.Cut(rest, "/")
			served[name] = true
		}
		if err := d.SkipValue(); err != nil {
			return err
		}
	}
	return expect(d, '}')
}

// remedy returns what to do about a slurmrestd that serves none of the wanted versions.
func remedy(wanted string, served map[string]bool) string {
	first := versions[0].name
	newer := false
	for name := range served {
		newer = newer || len(name) > len(first) || len(name) == len(first) && name >= first
	}
	switch {
	case len(served) > 0 && !newer:
		return "upgrade Slurm to 23.11 or later, or set slurm.transport to cli or ssh, which support Slurm 22.05"
	case wanted != "":
		return "set slurm.rest.version to a version that slurmrestd serves, or leave it out"
	}
	return "upgrade slurmgate to a version that knows this slurmrestd"
}

// newest returns the version to use: the newest that is served and wanted.
func newest(wanted string, served map[string]bool) (version, error) {
	for _, v := range slices.Backward(versions) {
		if served[v.name] && (wanted == "" || v.name == wanted) {
			return v, nil
		}
	}
	names := slices.Sorted(maps.Keys(served))
	here, what := Versions(), "slurmgate speaks"
	if wanted != "" {
		here, what = []string{wanted}, "slurm.rest.version is"
	}
	return version{}, fmt.Errorf("it serves %s, and %s %s", strings.Join(names, ", "), what, strings.Join(here, ", "))
}
