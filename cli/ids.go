package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/plan"
)

// Ids as users type them: whole, or the beginning of one that is unique among those the caller may see, in either case,
// with run_ or art_ before it or without. An artifact may also be named by a file with its bytes. The gateway gets
// whole ids.

// idKind describes the ids of one kind of thing.
type idKind struct {
	prefix, noun string
	isWhole      func(string) bool
}

var (
	runIDs      = idKind{"run_", "run", plan.IsRunID}
	artifactIDs = idKind{"art_", "artifact", plan.IsArtifactID}
)

// idChars are the characters of an id after its prefix, and idLength is how many it has.
const (
	idChars  = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	idLength = 26
)

// beginning returns the beginning of an id in its own spelling; empty if the text is not the beginning of an id.
func (k idKind) beginning(text string) string {
	rest := strings.ToUpper(text)
	if len(text) >= len(k.prefix) && strings.EqualFold(text[:len(k.prefix)], k.prefix) {
		rest = rest[len(k.prefix):]
	}
	if rest == "" || len(rest) > idLength || strings.Trim(rest, idChars) != "" {
		return ""
	}
	return k.prefix + rest
}

// isShort reports whether a text may be the beginning of an id.
func isShort(k idKind, text string) bool { return k.beginning(text) != "" && !k.isWhole(text) }

// candidate is an id that a short one may mean, and a description to choose by.
type candidate struct{ id, what string }

// mostCandidates is the number of ids in the error for an ambiguous one.
const mostCandidates = 10

// whole finds the id that a text begins.
func (s *Session) whole(ctx context.Context, k idKind, text string) (string, error) {
	begin := k.beginning(text)
	found, total, err := s.candidates(ctx, k, begin, "")
	switch {
	case err != nil:
		return "", err
	case total == 0:
		step := fault.Do("run.list")
		if k.prefix == artifactIDs.prefix {
			step = fault.Do("artifact.list")
		}
		return "", fault.New(fault.NotFound, k.noun+"_not_found", fmt.Sprintf("no %s begins with %s", k.noun, begin)).WithSteps(step)
	case total == 1:
		return found[0].id, nil
	}
	lines := ""
	for _, c := range found {
		lines += "\n  " + c.id + "  " + c.what
	}
	if more := total - int64(len(found)); more > 0 {
		lines += fmt.Sprintf("\n  … and %d more", more)
	}
	return "", fault.New(fault.Validation, "id_ambiguous", fmt.Sprintf("%d %ss begin with %s:%s", total, k.noun, begin, lines)).
		WithNext("type more characters of the id")
}

// candidates returns the ids that begin with a text or, of artifacts, have a checksum: those the caller may see, newest
// first.
func (s *Session) candidates(ctx context.Context, k idKind, begin, checksum string) (found []candidate, total int64, err error) {
	dry, key := s.dryRun, s.key
	s.dryRun, s.key = false, "" // a separate read
	defer func() { s.dryRun, s.key = dry, key }()
	if k.prefix == runIDs.prefix {
		var l app.RunList
		err = s.call(ctx, "run.list", app.RunListArgs{IDPrefix: begin, Page: app.Page{Limit: mostCandidates}}, &l)
		for _, r := range append(l.Waiting, l.Runs...) {
			found = append(found, candidate{r.RunID, fmt.Sprintf("%s  %s  %s", r.ToolID, r.State, dateTime(r.CreatedAt))})
		}
		return found, max(l.Total+l.WaitingTotal, int64(len(found))), err
	}
	var l app.ArtifactList
	err = s.call(ctx, "artifact.list", app.ArtifactListArgs{IDPrefix: begin, Checksum: checksum, Page: app.Page{Limit: mostCandidates}}, &l)
	for _, d := range l.Artifacts {
		found = append(found, candidate{d.ArtifactID, fmt.Sprintf("%s  %s  %s", d.Type, d.Label, dateTime(d.CreatedAt))})
	}
	return found, l.Total, err
}

// byContent finds the artifact that has the bytes of a file; of several one with the file's name, else the newest.
func (s *Session) byContent(ctx context.Context, a *Shell, path string) (string, error) {
	f, err := openFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	m := &meter{shell: a, name: filepath.Base(path), began: time.Now()}
	_, err = io.Copy(h, &metered{Reader: duringRead{ctx, f}, meter: m, what: "hashing"})
	m.end(err)
	if err != nil {
		return "", fault.Wrap(fault.KindOf(err), "file_unreadable", "cannot read "+path, err)
	}
	found, _, err := s.candidates(ctx, artifactIDs, "", hex.EncodeToString(h.Sum(nil)))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fault.New(fault.NotFound, "artifact_not_found", "no artifact that you may see has the bytes of "+path).
			WithSteps(fault.Do("artifact.import", "path", path))
	}
	named := slices.IndexFunc(found, func(c candidate) bool { return strings.Contains(c.what, "  "+filepath.Base(path)+"  ") })
	return found[max(0, named)].id, nil
}

type duringRead struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r duringRead) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, fault.Wrap(fault.Canceled, "canceled", "interrupted", err)
	}
	return r.Reader.Read(b)
}

// shortIDs returns the arguments and options that hold an id that is not whole. Their fields have the tag ids:"run" or
// ids:"artifact", or ids:"artifact,file" where a file with the artifact's bytes is accepted too.
func shortIDs(k *kong.Context) (out []*kong.Value) {
	var values []*kong.Value
	if n := k.Selected(); n != nil {
		values = append(values, n.Positional...)
	}
	for _, f := range k.Flags() {
		values = append(values, f.Value)
	}
	for _, v := range values {
		if k, file := idsOf(v); k.noun != "" && v.Target.String() != "" {
			text := v.Target.String()
			if isShort(k, text) || file && !k.isWhole(text) && isFile(text) {
				out = append(out, v)
			}
		}
	}
	return out
}

// idsOf returns which ids an argument takes, and whether it takes a file too; zero for other arguments.
func idsOf(v *kong.Value) (k idKind, file bool) {
	if v.Tag == nil {
		return k, false
	}
	switch v.Tag.Get("ids") {
	case "run":
		return runIDs, false
	case "artifact":
		return artifactIDs, false
	case "artifact,file":
		return artifactIDs, true
	}
	return k, false
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// carryOut runs the verb, with whole ids.
func (a *Shell) carryOut(ctx context.Context, k *kong.Context) error {
	short := shortIDs(k)
	if len(short) == 0 {
		return k.Run(a)
	}
	return a.With(ctx, func(s *Session) error {
		for _, v := range short {
			kind, file := idsOf(v)
			text := v.Target.String()
			find := func() (string, error) { return s.whole(ctx, kind, text) }
			if file && isFile(text) {
				find = func() (string, error) { return s.byContent(ctx, a, text) }
			}
			id, err := find()
			if err != nil {
				return err
			}
			v.Target.SetString(id)
		}
		return k.Run(a)
	})
}
