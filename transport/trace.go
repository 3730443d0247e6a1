package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/staging"
)

// trace is evidence that a cluster's runs_dir was used before; mark and runID are empty for a new one.
type trace struct {
	where string // the folder, for messages
	mark  string // the gateway that it belongs to
	runID string // a run in it
	err   error
}

// found returns the evidence that there was a ledger, for a message, or "".
func (t trace) found() string {
	switch {
	case t.mark != "":
		return t.where + " belongs to gateway " + t.mark
	case t.runID != "":
		return t.where + " contains runs (" + t.runID + ")"
	}
	return ""
}

// away reports whether the cluster's host could not be asked, so that its folder is unknown.
func (t trace) away() bool { return t.err != nil && strings.HasPrefix(fault.CodeOf(t.err), "ssh_") }

// trace examines the runs_dir of one cluster.
func (h *Hosts) trace(ctx context.Context, c *site.Site) (t trace) {
	if c.AsCaller() {
		return t // the folders are the users', whose names are unknown without the ledger: userLogin.ownRuns checks at each user's first login
	}
	if c.FarFiles() {
		t.where = fmt.Sprintf("the runs_dir %s of %s", c.Storage.SFTP.RunsDir, c.Storage.SFTP.Host)
		if t.mark, t.runID, t.err = h.farTraces(ctx, c); t.err != nil {
			t.err = fmt.Errorf("%s: %w", t.where, t.err)
		}
		return t
	}
	t.where = "the runs_dir " + c.Storage.RunsDir
	if t.mark, t.err = staging.Mark(c.Storage.RunsDir); t.err == nil && t.mark == "" {
		t.runID, t.err = first(c.Storage.RunsDir, func(name string) bool { return strings.HasPrefix(name, "run_") })
	}
	return t
}

// allTraces examines the runs_dir of every cluster concurrently, so that several unreachable ones cost one time limit.
func allTraces(ctx context.Context, s *site.Site) []trace {
	h := QuietHosts()
	defer h.Close()
	list := make([]trace, len(s.Clusters()))
	var looks sync.WaitGroup
	for i, c := range s.Clusters() {
		looks.Go(func() { list[i] = h.trace(ctx, c) })
	}
	looks.Wait()
	return list
}

// Mark returns the id of the gateway that a runs_dir of the site belongs to; empty: none has a mark. A folder that cannot be read is
// reported when it is opened.
func Mark(ctx context.Context, s *site.Site) string {
	for _, t := range allTraces(ctx, s) {
		if t.mark != "" {
			return t.mark
		}
	}
	return ""
}

// Traces returns the evidence that the site had a ledger before, or "". An unreachable cluster is
// ignored while another one answers: before its first use, [Sites.workspace] makes the same check.
func Traces(ctx context.Context, s *site.Site) (string, error) {
	var failed error
	answered := false
	for _, t := range allTraces(ctx, s) {
		switch {
		case t.found() != "":
			return t.found(), nil
		case t.err == nil:
			answered = true
		case !t.away():
			return "", t.err
		case failed == nil:
			failed = t.err
		}
	}
	if !answered {
		return "", failed
	}
	objects := filepath.Join(s.Gateway.ArtifactDir, "objects")
	if name, err := first(objects, func(string) bool { return true }); name != "" || err != nil {
		return "the artifact_dir " + s.Gateway.ArtifactDir + " contains artifacts", err
	}
	return "", nil
}

// first returns a name in a folder for which fits returns true, or "".
func first(dir string, fits func(name string) bool) (string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(256)
		for _, name := range names {
			if fits(name) {
				return name, nil
			}
		}
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
}

// FormerFolders returns what an admin has to check, for each cluster, before a gateway starts with a ledger from a
// backup.
func FormerFolders(s *site.Site) (advice []string) {
	for _, c := range s.Clusters() {
		if c.AsCaller() {
			advice = append(advice, fmt.Sprintf("make sure that the users' folders %s are the former ones: their workspaces are what keeps runs "+
				"made after the backup from being executed again", c.Storage.RunsDir))
			continue
		}
		if c.FarFiles() {
			advice = append(advice, fmt.Sprintf("make sure that the runs_dir %s on %s is the former one: its workspaces are what keeps runs made "+
				"after the backup from being executed again", c.Storage.SFTP.RunsDir, c.Storage.SFTP.Host))
			continue
		}
		if id, err := staging.Mark(c.Storage.RunsDir); err == nil && id == "" {
			advice = append(advice, "mount the runs_dir "+c.Storage.RunsDir+", or put the former one there: it has no workspaces now, and they are "+
				"what keeps runs made after the backup from being executed again")
		}
	}
	return advice
}
