package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
)

// version is what differs between the versions of slurmrestd's API, as data. [versions] is the whole of it.
type version struct {
	name string // as in paths

	cluster bool // answers name the cluster (meta.slurm.cluster)
	kills   bool // DELETE /jobs/ takes jobs, job_name and user_name together
	state   bool // GET /jobs/state/
	byName  bool // GET /slurmdb/…/jobs/ filters by job_name
	byUser  bool // and by users
	exits   bool // records of slurmdbd show exit statuses; before, each is 0
	oomKill bool // jobs have oom_kill_step
	nested  bool // times, limits and the like are objects {set, infinite, number}; before they are numbers, and other things differ in form
}

// versions is every version that this program speaks, oldest first.
var versions = []version{
	{name: "v0.0.38"},
	{name: "v0.0.40", cluster: true, byName: true, byUser: true, exits: true, nested: true},
	{name: "v0.0.41", cluster: true, kills: true, state: true, byName: true, byUser: true, exits: true, nested: true},
	{name: "v0.0.42", cluster: true, kills: true, state: true, byName: true, byUser: true, exits: true, nested: true, oomKill: true},
	{name: "v0.0.43", cluster: true, kills: true, state: true, byName: true, byUser: true, exits: true, nested: true, oomKill: true},
	{name: "v0.0.44", cluster: true, kills: true, state: true, byName: true, byUser: true, exits: true, nested: true, oomKill: true},
	{name: "v0.0.45", cluster: true, kills: true, state: true, byName: true, byUser: true, exits: true, nested: true, oomKill: true},
}

// Versions lists the names of the versions that this program speaks, oldest first.
func Versions() (names []string) {
	for _, v := range versions {
		names = append(names, v.name)
	}
	return names
}

// negotiation is the version that both sides speak, once it is known.
type negotiation struct {
	wanted string // by the site file; empty: the newest

	asking sync.Mutex // one at a time
	last   atomic.Pointer[version]
}

// known is the version in use; nil: it is not negotiated.
func (n *negotiation) known() *version { return n.last.Load() }

func (n *negotiation) forget() { n.last.Store(nil) }

// maxDocument bounds slurmrestd's OpenAPI document; that of 24.11 has 1.6 MB.
const maxDocument = 64 << 20

// NoVersion is the code of a slurmrestd that speaks no version that this program, or the site file, wants.
const NoVersion = "rest_version"

// negotiated is the newest version that both sides speak. slurmrestd is asked once; its document is read as it comes.
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
			"set slurm.rest.version to a version that both speak, or upgrade the older of the two")
	}
	c.version.last.Store(&v)
	return v, nil
}

// pathVersions collects the versions in the names of the calls about slurmctld: /slurm/v0.0.42/ping/.
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

// newest picks the version to use.
func newest(wanted string, served map[string]bool) (version, error) {
	for _, v := range slices.Backward(versions) {
		if served[v.name] && (wanted == "" || v.name == wanted) {
			return v, nil
		}
	}
	var names []string
	for name := range served {
		names = append(names, name)
	}
	slices.Sort(names)
	here, what := Versions(), "slurmgate speaks"
	if wanted != "" {
		here, what = []string{wanted}, "slurm.rest.version is"
	}
	return version{}, fmt.Errorf("it serves %s, and %s %s", strings.Join(names, ", "), what, strings.Join(here, ", "))
}
