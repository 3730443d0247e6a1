package run_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// shared is the filesystem of the world: its files outlive the gateways.
type shared struct {
	attempts map[string]*attempt           // "<run_id>/<n>": its folder
	gone     map[string]string             // "<run_id>/<n>": the file in its place
	inputs   map[string]map[string]content // by run and path
}

func newShared() shared {
	return shared{attempts: map[string]*attempt{}, gone: map[string]string{}, inputs: map[string]map[string]content{}}
}

// content is an entry of a folder.
type content struct {
	kind runtest.Entries
	data string
}

type attempt struct {
	token      string
	ctl        map[string][]byte
	out        map[string]string
	odd        map[string]runtest.Entries // entries other than plain files, by path: ctl/…, out/…
	executions int
}

func newAttempt(token string) *attempt {
	return &attempt{token: token, ctl: map[string][]byte{}, out: map[string]string{}, odd: map[string]runtest.Entries{}}
}

func folder(runID string, n int) string { return fmt.Sprintf("%s/%d", runID, n) }

func (s *shared) attempt(runID string, n int) *attempt { return s.attempts[folder(runID, n)] }

func broken(kind fault.Kind, code, about string) error {
	return fault.New(kind, code, "the fake refuses "+about)
}

func checkRun(runID string, n int) error {
	switch {
	case !plan.IsRunID(runID):
		return broken(fault.Validation, "run_id", runID)
	case n < 1:
		return broken(fault.Validation, "attempt_number", fmt.Sprint(n))
	}
	return nil
}

func (l *life) OpenTogether(ctx context.Context, list []run.Opening) []error {
	return run.OpenEach(ctx, l, list)
}

// there returns the folder of an attempt.
func (s *shared) there(runID string, n int) (*attempt, error) {
	if err := checkRun(runID, n); err != nil {
		return nil, err
	}
	if a := s.attempt(runID, n); a != nil {
		return a, nil
	}
	return nil, broken(fault.NotFound, "attempt_missing", folder(runID, n))
}

func (l *life) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open run.Opener) error {
	if err := checkRun(runID, 1); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fault.Wrap(fault.Canceled, "canceled", "the caller gave up", err)
	}
	in, dirs := map[string]content{}, map[string]bool{}
	for _, i := range inputs {
		if plan.CheckRelPath(i.DestRelpath, "in") != "" {
			return broken(fault.Validation, "PLAN-DEST-PATH", i.DestRelpath)
		}
		if _, dup := in[i.DestRelpath]; dup {
			return broken(fault.Validation, "PLAN-DEST-DUPLICATE", i.DestRelpath)
		}
		in[i.DestRelpath] = content{}
		for d := path.Dir(i.DestRelpath); d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	for _, i := range inputs {
		if dirs[i.DestRelpath] {
			return broken(fault.Validation, "PLAN-DEST-DUPLICATE", i.DestRelpath)
		}
		r, _, err := open(ctx, i.ChecksumSHA256)
		if err != nil {
			return fault.Wrap("", fault.CodeOf(err), "no bytes of "+i.DestRelpath, err)
		}
		data, err := io.ReadAll(r)
		r.Close()
		switch {
		case err != nil:
			return fault.Wrap(fault.Transport, "filesystem", "cannot read "+i.DestRelpath, err)
		case hash(data) != i.ChecksumSHA256:
			return broken(fault.Validation, "input_checksum", i.DestRelpath)
		}
		in[i.DestRelpath] = content{runtest.File, string(data)}
	}
	if err := l.w.copy(ctx); err != nil {
		return err
	}
	l.hang(ctx, "StageInputs", runID)
	return l.do("StageInputs", func() error {
		l.w.staged[runID]++
		l.w.inputs[runID] = in
		return nil
	})
}

func (l *life) OpenAttempt(ctx context.Context, runID string, n int, token string, files ...run.ControlFile) error {
	l.hang(ctx, "OpenAttempt", runID)
	return l.do("OpenAttempt", func() error {
		if err := checkRun(runID, n); err != nil {
			return err
		}
		if len(token) != 32 {
			return broken(fault.Validation, "token", token)
		}
		for _, f := range files {
			if !controlName(f.Name) || f.Name == run.ClaimFile || f.Name == "token" {
				return broken(fault.Validation, "control_name", f.Name)
			}
		}
		a := l.w.attempt(runID, n)
		switch {
		case a == nil && l.w.gone[folder(runID, n)] == "":
			a = newAttempt(token)
			l.w.attempts[folder(runID, n)] = a
		case a == nil, a.token != token:
			return broken(fault.Conflict, "workspace_ahead_of_ledger", folder(runID, n))
		}
		for _, f := range files {
			a.ctl[f.Name] = bytes.Clone(f.Data)
		}
		return nil
	})
}

func controlName(s string) bool {
	return s != "" && s[0] != '.' && len(s) <= 128 && !strings.ContainsAny(s, "/\n")
}

func (l *life) RunDir(runID string) string { return "/runs/" + runID }

func (l *life) ReadControlFrom(ctx context.Context, runID string, n int, name string, from, limit int64) (p run.Part, err error) {
	l.hang(ctx, "ReadControl", runID)
	err = l.do("ReadControl", func() error {
		if !controlName(name) {
			return broken(fault.Validation, "control_name", name)
		}
		a, err := l.w.there(runID, n)
		if err != nil {
			return err
		}
		if a.odd["ctl/"+name] != "" {
			return broken(fault.Conflict, "workspace_foreign_entry", name)
		}
		all, ok := a.ctl[name]
		if !ok {
			return broken(fault.NotFound, "control_missing", name)
		}
		size := int64(len(all))
		if p.From = from; from < 0 {
			p.From = max(0, size+from)
		}
		p.From = min(p.From, size)
		p.Data = all[p.From:min(size, p.From+limit)]
		return nil
	})
	return p, err
}

func (l *life) TakeClaim(ctx context.Context, runID string, n int, content []byte) (data []byte, err error) {
	l.hang(ctx, "TakeClaim", runID)
	err = l.do("TakeClaim", func() error {
		a, err := l.w.there(runID, n)
		if err != nil {
			return err
		}
		if a.odd["ctl/claim"] != "" {
			return broken(fault.Conflict, "workspace_foreign_entry", "the claim")
		}
		data = a.claim(content)
		return nil
	})
	return data, err
}

// claim takes the claim unless it is taken, and returns its content.
func (a *attempt) claim(content []byte) []byte {
	if a.ctl["claim"] == nil {
		a.ctl["claim"] = content
	}
	return a.ctl["claim"]
}

func (l *life) OpenOutput(_ context.Context, runID string, n int, rel string) (r io.ReadCloser, size int64, err error) {
	err = l.do("OpenOutput", func() error {
		if plan.CheckRelPath(rel, "out") != "" {
			return broken(fault.Validation, "PLAN-SRC-PATH", rel)
		}
		a, err := l.w.there(runID, n)
		if err != nil {
			return broken(fault.Tool, run.OutputMissing, rel)
		}
		for p := rel; p != "out"; p = path.Dir(p) {
			switch a.odd[p] {
			case runtest.Symlink:
				return broken(fault.Tool, run.OutputSymlink, rel)
			case runtest.Hardlink:
				return broken(fault.Tool, run.OutputHardlink, rel)
			case runtest.Pipe, runtest.Folder:
				return broken(fault.Tool, run.OutputIrregular, rel)
			}
		}
		s, ok := a.out[rel]
		switch {
		case !ok:
			return broken(fault.Tool, run.OutputMissing, rel)
		case l.foreign:
			return broken(fault.Tool, run.OutputOwner, rel)
		}
		r, size = io.NopCloser(strings.NewReader(s)), int64(len(s))
		return nil
	})
	return r, size, err
}

func (l *life) Undeclared(_ context.Context, runID string, n int, declared []string, limit int) (list []string, err error) {
	err = l.do("Undeclared", func() error {
		a, err := l.w.there(runID, n)
		if err != nil {
			return err
		}
		for _, p := range slices.Sorted(maps.Keys(a.out)) {
			list = append(list, p)
		}
		for p := range a.odd {
			if strings.HasPrefix(p, "out/") {
				list = append(list, p)
			}
		}
		slices.Sort(list)
		list = slices.DeleteFunc(list, func(p string) bool { return slices.Contains(declared, p) })
		list = list[:min(limit, len(list))]
		return nil
	})
	return list, err
}

func (l *life) RemoveRun(_ context.Context, runID string, tokens map[int]string, still func() (bool, error)) (freed int64, err error) {
	err = l.do("RemoveRun", func() error {
		if err := checkRun(runID, 1); err != nil {
			return err
		}
		for name, a := range l.w.attempts {
			var n int
			if id, rest, _ := strings.Cut(name, "/"); id == runID {
				fmt.Sscan(rest, &n)
				if token, known := tokens[n]; !known || token != a.token {
					return broken(fault.Conflict, "workspace_ahead_of_ledger", name)
				}
			}
		}
		if ok, err := still(); !ok || err != nil {
			return err
		}
		freed = l.w.size(runID)
		for n, token := range tokens {
			delete(l.w.attempts, folder(runID, n))
			l.w.gone[folder(runID, n)] = "slurmgate-removed 1 token=" + token + "\n"
		}
		delete(l.w.inputs, runID)
		return nil
	})
	return freed, err
}

func (l *life) RunSize(_ context.Context, runID string) (n int64, err error) {
	err = l.do("RunSize", func() error { n = l.w.size(runID); return nil })
	return n, err
}

func (l *life) EachFile(_ context.Context, runID string, f func(func() (io.ReadCloser, error)) (bool, error)) error {
	return l.do("EachFile", func() error {
		all := [][]byte{}
		for _, c := range l.w.inputs[runID] {
			all = append(all, []byte(c.data))
		}
		for name, a := range l.w.attempts {
			if !strings.HasPrefix(name, runID+"/") {
				continue
			}
			for _, data := range a.ctl {
				all = append(all, data)
			}
			for _, data := range a.out {
				all = append(all, []byte(data))
			}
		}
		for _, data := range all {
			if more, err := f(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }); !more || err != nil {
				return err
			}
		}
		return nil
	})
}

// size returns the number of bytes in folders.
func (s *shared) size(runID string) (n int64) {
	for _, c := range s.inputs[runID] {
		n += int64(len(c.data))
	}
	for name, a := range s.attempts {
		if !strings.HasPrefix(name, runID+"/") {
			continue
		}
		n += int64(len(a.token) + 1)
		for _, data := range a.ctl {
			n += int64(len(data))
		}
		for _, data := range a.out {
			n += int64(len(data))
		}
	}
	return n
}

// leave creates an entry in a run's folder, as runtest.Files requires.
func (s *shared) leave(runID, rel string, e runtest.Entry) {
	var n int
	var rest string
	if _, err := fmt.Sscanf(rel, "a%d/%s", &n, &rest); err == nil {
		a := s.attempt(runID, n)
		if a == nil {
			a = newAttempt("")
			s.attempts[folder(runID, n)] = a
		}
		name, ctl := strings.CutPrefix(rest, "ctl/")
		delete(a.odd, rest)
		switch {
		case e.Kind != runtest.File:
			a.odd[rest] = e.Kind
		case ctl:
			a.ctl[name] = []byte(e.Data)
		default:
			a.out[rest] = e.Data
		}
		return
	}
	if _, err := fmt.Sscanf(rel, "a%d", &n); err == nil {
		s.gone[folder(runID, n)] = e.Data
		return
	}
	if s.inputs[runID] == nil {
		s.inputs[runID] = map[string]content{}
	}
	s.inputs[runID][rel] = content{e.Kind, e.Data}
}

// read returns what a job reads at a path.
func (s *shared) read(runID, rel string) (string, bool) {
	var n int
	var rest string
	if _, err := fmt.Sscanf(rel, "a%d/%s", &n, &rest); err == nil {
		a := s.attempt(runID, n)
		if a == nil || a.odd[rest] != "" {
			return "", false
		}
		if rest == "ctl/token" {
			return a.token + "\n", a.token != ""
		}
		if name, ctl := strings.CutPrefix(rest, "ctl/"); ctl {
			data, ok := a.ctl[name]
			return string(data), ok
		}
		data, ok := a.out[rest]
		return data, ok
	}
	if _, err := fmt.Sscanf(rel, "a%d", &n); err == nil {
		data, ok := s.gone[folder(runID, n)]
		return data, ok
	}
	c := s.inputs[runID][rel]
	return c.data, c.kind == runtest.File
}

func (l *life) Verify(_ context.Context, digest string) (path string, err error) {
	err = l.do("Verify", func() error {
		good, ok := l.w.images[digest]
		switch {
		case !plan.IsSHA256(digest):
			return broken(fault.Validation, "IMAGE-REF", digest)
		case !ok:
			return broken(fault.NotFound, "IMAGE-NOT-FOUND", digest)
		case !good:
			return broken(fault.Tool, "IMAGE-DIGEST", digest)
		}
		path = "/images/" + digest + ".sif"
		return nil
	})
	return path, err
}

func (l *life) ExecArgs(s plan.Spec, binds []plan.Bind, inputs []run.Placed, image, runDir, attemptDir string) []string {
	args := []string{"exec", "--containall", "--network", "none", "--bind", runDir + "/in:/work/in:ro", "--bind",
		attemptDir + "/out:/work/out",
		"--bind", attemptDir + "/meta:/work/meta:ro"}
	for _, b := range binds {
		if b.Name == "refs" {
			args = append(args, "--bind", "/refs:/refs:ro")
		}
	}
	return slices.Concat(args, []string{image}, s.Execution.Command.Argv)
}
