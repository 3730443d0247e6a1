package retention_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/retention"
	"slurmgate/run"
)

const leaked = `s3 "cr'et/of+nobody$`

func secret(t *testing.T) *retention.Secret {
	t.Helper()
	s, err := retention.NewSecret([]byte(leaked+"\n"), "ers_test")
	must(t, err)
	return s
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	must(t, errors.Join(err, z.Close()))
	return b.String()
}

// Every form in which programs write a secret is found and redacted; other text is kept.
func TestSecretForms(t *testing.T) {
	s := secret(t)
	quoted, err := json.Marshal(leaked)
	must(t, err)
	twice, err := json.Marshal(string(quoted))
	must(t, err)
	forms := []string{leaked, string(quoted), string(twice), url.QueryEscape(leaked), url.PathEscape(leaked),
		strings.ToLower(url.QueryEscape(leaked)[:5]) + url.QueryEscape(leaked)[5:], fmt.Sprintf("%x", leaked), fmt.Sprintf("%X", leaked),
		`'s3 "cr'\''et/of+nobody$'`, `"s3 \"cr'et/of+nobody\$"`, `s3\ \"cr\'et/of+nobody\$`}
	for before := range 3 {
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
			forms = append(forms, e.EncodeToString([]byte("abc"[:before]+leaked)), e.EncodeToString([]byte("abc"[:before]+leaked+"tail")))
		}
	}
	for _, f := range forms {
		text := "before " + f + " after"
		clean, n := s.Redact([]byte(text))
		if !s.In([]byte(text)) || n == 0 || s.In(clean) || !strings.HasPrefix(string(clean), "before ") || !strings.HasSuffix(string(clean),
			" after") {
			t.Errorf("%q: %q", text, clean)
		}
	}
	for _, text := range []string{"", "nothing", "s3 cret of nobody", strings.Repeat("[erased:ers_test]", 10)} {
		if clean, n := s.Redact([]byte(text)); n != 0 || string(clean) != text {
			t.Errorf("%q: %q", text, clean)
		}
	}
	for _, bad := range []string{"", "short", "aaaaaaaaaaaaaaaa", strings.Repeat("long", 5000)} {
		if _, err := retention.NewSecret([]byte(bad), "x"); !fault.Is(err, fault.Validation) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

// A secret in a file is found across the pieces in which the file is read, and in the content of gzip.
func TestSecretSearch(t *testing.T) {
	s := secret(t)
	for _, c := range []struct {
		name, data   string
		found, whole bool
	}{
		{"at the seam", strings.Repeat("x", 1<<20-5) + leaked, true, true},
		{"at the end", strings.Repeat("x", 3<<20) + leaked, true, true},
		{"nowhere", strings.Repeat(leaked[:8], 1<<18), false, true},
		{"in gzip", packed(t, strings.Repeat("y", 2<<20)+leaked), true, true},
		{"in damaged gzip", packed(t, strings.Repeat("y", 2<<20)+leaked)[:30], false, false},
		{"like gzip", "\x1f\x8b no", false, true}, {"empty", "", false, true},
	} {
		found, whole, err := s.Search(t.Context(), func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(c.data)), nil })
		if found != c.found || whole != c.whole || err != nil {
			t.Errorf("%s: %v %v %v", c.name, found, whole, err)
		}
	}
}

func FuzzSecret(f *testing.F) {
	f.Add([]byte(leaked), []byte("before "), []byte(" after"))
	f.Add([]byte("\x00\xff\n'\"\\ \u2028<>&%"), []byte("{\""), []byte("\"}"))
	f.Fuzz(func(t *testing.T, text, before, after []byte) {
		s, err := retention.NewSecret(text, "ers_fuzz")
		if err != nil || s.In([]byte(retention.Mark+"ers_fuzz]")) {
			return
		}
		whole := slices.Concat(before, bytes.TrimRight(text, "\r\n"), after)
		clean, n := s.Redact(whole)
		if !s.In(whole) || n == 0 {
			t.Errorf("%q is not found in %q", text, whole)
		}
		if bytes.Contains(clean, bytes.TrimRight(text, "\r\n")) && !bytes.Contains(append(before, after...), text[:1]) {
			t.Errorf("%q is left in %q", text, clean)
		}
	})
}

// leak plants the secret: an input in gzip, an output, a log, a script, params, and the workspace of a finished run.
// It also creates a run without it.
func (w *world) leak() (input run.Artifact, id, clean string) {
	w.t.Helper()
	ctx := context.Background()
	input = w.add(packed(w.t, "a table with "+leaked), "in.gz")
	id, clean = w.submit(input), w.submit(w.add("harmless", "b"))
	for _, x := range []struct{ id, text string }{{id, leaked}, {clean, "nothing"}} {
		v, err := w.ledger.View(ctx, x.id)
		must(w.t, err)
		must(w.t, os.MkdirAll(filepath.Join(w.dir, "runs", x.id, "a1/out/deep"), 0o700))
		must(w.t, os.WriteFile(filepath.Join(w.dir, "runs", x.id, "a1/out/deep/result"), []byte("result "+x.text), 0o600))
		at, code := w.now(), 1
		write := run.Write{Run: v.Run, Event: run.Event{Type: "run.over", Data: map[string]any{"detail": x.text}}}
		write.Run.State, write.Run.Phase, write.Run.Detail, write.Run.FinishedAt, write.Run.ExitCode = run.Failed, run.Done, x.text, &at, &code
		a := v.Attempt
		a.Ending = run.EndedToolFailed
		out, log := w.artifact("content "+x.text, "out", x.id), w.artifact("log of "+x.id+"\n"+x.text+"\nend", "log", x.id)
		script, payload := w.payload("script "+x.text+strings.Repeat("as long as scripts are\n", 100), "slurm_script", x.id)
		write.Artifacts, write.Attempts, write.Payloads = []run.Artifact{out, log, script}, []run.Attempt{a}, []run.Payload{payload}
		write.Outputs = []run.Link{{Role: "out", ArtifactID: out.ID, Relpath: "out/f"}, {Role: "log", ArtifactID: log.ID}}
		write.Run.LogArtifactID, write.Run.ScriptArtifactID = log.ID, script.ID
		_, err = w.ledger.Apply(ctx, write)
		must(w.t, err)
	}
	return input, id, clean
}

func (w *world) deleter() retention.Deleter {
	return retention.Deleter{Ledger: w.ledger, Workspaces: w.shared, Store: w.store, Now: w.now}
}

func erasure(id string) retention.Erasure {
	return retention.Erasure{ID: id, By: "user:lab", Reason: "it leaked", HMAC: strings.Repeat("0", 64)}
}

// left lists the files below the world that hold the secret.
func (w *world) left(s *retention.Secret) (names []string) {
	w.t.Helper()
	must(w.t, filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		found, _, err := s.Search(context.Background(), func() (io.ReadCloser, error) { return os.Open(path) })
		if found {
			names = append(names, path)
		}
		return err
	}))
	return names
}

// erased checks the world after an erasure.
func (w *world) erased(input run.Artifact, id, clean string) {
	w.t.Helper()
	s, ctx := secret(w.t), context.Background()
	if left := w.left(s); len(left) > 0 {
		w.t.Errorf("the secret is still in %v", left)
	}
	must(w.t, w.ledger.Integrity(ctx))
	for _, sum := range w.checksums() {
		must(w.t, w.store.Verify(ctx, sum))
	}
	if _, err := w.ledger.Artifact(ctx, input.ID); fault.CodeOf(err) != "artifact_erased" {
		w.t.Error(err)
	}
	outputs, err := w.ledger.Outputs(ctx, id)
	must(w.t, err)
	for _, o := range outputs {
		_, err := w.ledger.Artifact(ctx, o.ArtifactID)
		if o.Role != "log" && fault.CodeOf(err) != "artifact_erased" || o.Role == "log" && err != nil {
			w.t.Errorf("%s: %v", o.Role, err)
		}
	}
	v, err := w.ledger.View(ctx, id)
	must(w.t, err)
	for what, artifactID := range map[string]string{"log of " + id + "\n" + retention.Mark: v.Run.LogArtifactID,
		"script " + retention.Mark: v.Run.ScriptArtifactID} {
		a, err := w.ledger.Artifact(ctx, artifactID)
		must(w.t, err)
		f, err := w.store.Open(a.SHA256)
		must(w.t, err)
		text, err := io.ReadAll(f)
		must(w.t, errors.Join(err, f.Close()))
		if !strings.HasPrefix(string(text), what) {
			w.t.Errorf("%q", text)
		}
	}
	if _, err := os.Stat(filepath.Join(w.dir, "runs", clean, "a1/out/deep/result")); err != nil {
		w.t.Error("a workspace without the secret is gone:", err)
	}
	if _, _, err := w.ledger.AddArtifact(ctx, w.artifact(packed(w.t, "a table with "+leaked), "again", "import")); fault.CodeOf(
		err) != "artifact_erased" {
		w.t.Error("the erased bytes can be imported again:", err)
	}
}

// A secret is erased from the ledger, the store and the workspaces, and nothing else is; a dry run reports where it
// is and changes nothing.
func TestErase(t *testing.T) {
	w := newWorld(t)
	input, id, clean := w.leak()
	before := w.left(secret(t))
	dry, err := w.deleter().Erase(t.Context(), erasure("ers_dry"), secret(t), true)
	if err != nil || dry.ID != "" || len(dry.Found) == 0 || !slices.Equal(w.left(secret(t)), before) || len(before) < 4 {
		t.Fatalf("a dry erasure gives %+v %v of %v, want what it found, and all left", dry, err, before)
	}
	r, err := w.deleter().Erase(t.Context(), erasure("ers_test"), secret(t), false)
	if err != nil || r.ID != "ers_test" || r.Left != 0 || len(r.Pending)+len(r.Skipped)+len(r.InFlight) != 0 {
		t.Fatalf("the erasure gives %+v %v, want nothing left, pending or skipped", r, err)
	}
	count := map[string]int{}
	for _, f := range r.Found {
		count[f.What] = f.Count
	}
	if count["artifacts"] != 2 || count["logs and scripts"] != 2 || count["workspaces"] != 1 || count["documents"] != 1 || count["runs"] != 1 {
		t.Error(count)
	}
	if r, err = w.deleter().Erase(t.Context(), erasure("ers_again"), secret(t), false); err != nil || r.ID != "" || len(r.Found) != 0 {
		t.Errorf("the erasure again gives %+v %v, want nothing found", r, err)
	}
	w.erased(input, id, clean)
}

// eraseSteps counts the steps until the gateway is killed.
type eraseSteps struct{ left int }

var errDied = errors.New("killed")

func (d *eraseSteps) step() error {
	if d.left--; d.left < 0 {
		return errDied
	}
	return nil
}

type dyingLedger struct {
	retention.DeletionLedger
	*eraseSteps
}

func (d dyingLedger) Erase(ctx context.Context, e retention.Erasure, s *retention.Secret, l retention.Leak, c []retention.Copy) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.DeletionLedger.Erase(ctx, e, s, l, c)
}

func (d dyingLedger) Done(ctx context.Context, id, kind string, names ...string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.DeletionLedger.Done(ctx, id, kind, names...)
}

func (d dyingLedger) Rest(ctx context.Context, id string) (retention.Rest, error) {
	if err := d.step(); err != nil {
		return retention.Rest{}, err
	}
	return d.DeletionLedger.Rest(ctx, id)
}

func (d dyingLedger) BeginRemoval(ctx context.Context, w retention.Workspace, before time.Time) (bool, error) {
	if err := d.step(); err != nil {
		return false, err
	}
	return d.DeletionLedger.BeginRemoval(ctx, w, before)
}

type dyingStore struct {
	retention.DeletionStore
	*eraseSteps
}

func (d dyingStore) Put(ctx context.Context, r io.Reader, limit int64) (string, int64, error) {
	if err := d.step(); err != nil {
		return "", 0, err
	}
	return d.DeletionStore.Put(ctx, r, limit)
}

// An erasure killed at any step has either not begun, so that nothing has changed, or is finished by the next gateway
// without the secret.
func TestEraseKilled(t *testing.T) {
	for at := 0; ; at++ {
		w := newWorld(t)
		input, id, clean := w.leak()
		before := w.left(secret(t))
		steps := &eraseSteps{left: at}
		e := w.deleter()
		e.Ledger, e.Store = dyingLedger{w.ledger, steps}, dyingStore{w.store, steps}
		_, err := e.Erase(t.Context(), erasure("ers_test"), secret(t), false)
		unfinished, uerr := w.ledger.Unfinished(t.Context())
		must(t, uerr)
		all, uerr := w.ledger.Erasures(t.Context())
		must(t, uerr)
		switch {
		case len(all) == 0: // before the transaction
			if !errors.Is(err, errDied) || !slices.Equal(w.left(secret(t)), before) {
				t.Fatalf("step %d: %v %v", at, err, w.left(secret(t)))
			}
			continue
		case steps.left >= 0:
			if len(unfinished) != 0 || err != nil || at < 6 {
				t.Fatal(at, unfinished, err)
			}
			return
		}
		if len(unfinished) != 1 {
			t.Fatal(at, unfinished, err)
		}
		must(t, w.ledger.Integrity(t.Context()))
		pending, err := w.deleter().Resume(t.Context())
		if err != nil || len(pending) != 0 {
			t.Fatal(at, pending, err)
		}
		w.erased(input, id, clean)
	}
}

// A run in flight with the secret in its workspace or its input stops the erasure, which changes nothing.
func TestEraseRunInFlight(t *testing.T) {
	w := newWorld(t)
	input, _, _ := w.leak()
	open := w.submit(input)
	before := w.left(secret(t))
	r, err := w.deleter().Erase(t.Context(), erasure("ers_test"), secret(t), false)
	if fault.CodeOf(err) != "secret_in_flight" || !slices.Equal(r.InFlight, []string{open}) || !slices.Equal(w.left(secret(t)), before) {
		t.Errorf("while a run is open the erasure gives %+v %v, want that run, and all left", r, err)
	}
}
