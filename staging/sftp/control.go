package sftp

import (
	"bytes"
	"context"
	"io"
	"strconv"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/staging"
)

// voidFile is the file with the gateway's own claim, written when the attempt is opened. So taking the claim needs only
// a link, and no room on the disk.
const voidFile = ".claim.void"

// OpenAttempt creates <run_id>/a<n>/ctl with the token in ctl/token and the control files. See
// [staging.Shared.OpenAttempt].
func (w *Workspace) OpenAttempt(ctx context.Context, runID string, n int, token string, files ...run.ControlFile) error {
	if err := staging.CheckOpen(token, files); err != nil {
		return err
	}
	if err := check(ctx, runID, n); err != nil {
		return err
	}
	files = append([]run.ControlFile{{Name: staging.TokenFile, Data: []byte(token + "\n")}, {Name: voidFile, Data: run.VoidClaim(token)}},
		files...)
	return w.far.open(ctx, runID, n, token, files)
}

// OpenTogether opens each attempt separately. See [run.Workspace].
func (w *Workspace) OpenTogether(ctx context.Context, list []run.Opening) []error {
	return run.OpenEach(ctx, w, list)
}

// ReadControlFrom reads at most limit bytes of a control file, starting at byte from. See
// [staging.Shared.ReadControlFrom].
func (w *Workspace) ReadControlFrom(ctx context.Context, runID string, n int, name string, from, limit int64) (p run.Part, err error) {
	if limit < 0 {
		return p, fault.New(fault.Internal, "limit", "a negative limit")
	}
	if err := staging.CheckControl(name); err != nil {
		return p, err
	}
	if err := check(ctx, runID, n); err != nil {
		return p, err
	}
	return w.far.read(ctx, runID, n, name, from, limit)
}

// TakeClaim hard-links content into place as the claim unless there is one, and returns what the claim holds
// afterwards. The link decides, and only the content that is read afterwards shows who won. After an error the outcome
// is unknown; calling again is safe.
func (w *Workspace) TakeClaim(ctx context.Context, runID string, n int, content []byte) ([]byte, error) {
	if err := staging.CheckClaim(content); err != nil {
		return nil, err
	}
	if err := check(ctx, runID, n); err != nil {
		return nil, err
	}
	return w.far.claim(ctx, runID, n, content)
}

func (s *shelled) open(ctx context.Context, runID string, n int, token string, files []run.ControlFile) error {
	args := []string{runID, strconv.Itoa(n), token}
	var data []io.Reader
	for _, f := range files {
		args = append(append(args, f.Name), sized(f.Data)...)
		data = append(data, bytes.NewReader(f.Data))
	}
	_, err := s.run(ctx, call{script: controlScript, name: "open", args: args, stdin: io.MultiReader(data...), writes: true})
	return s.fault("attempt "+strconv.Itoa(n)+" of "+runID+" cannot be opened", runID, n, "", err)
}

// maxPlace bounds the line with the offset of a part.
const maxPlace = 32

func (s *shelled) read(ctx context.Context, runID string, n int, name string, from, limit int64) (p run.Part, err error) {
	out, err := s.run(ctx, call{script: controlScript, name: "read", limit: limit + maxPlace,
		args: []string{runID, strconv.Itoa(n), name, strconv.FormatInt(limit, 10), strconv.FormatInt(from, 10)}})
	if err == nil {
		place, data, _ := bytes.Cut(out, []byte("\n"))
		p.Data = data
		p.From, err = strconv.ParseInt(string(place), 10, 64)
	}
	return p, s.fault("control file "+name+" cannot be read", runID, n, name, err)
}

func (s *shelled) claim(ctx context.Context, runID string, n int, content []byte) ([]byte, error) {
	out, err := s.run(ctx, call{script: controlScript, name: "claim",
		args:  append([]string{runID, strconv.Itoa(n), voidFile}, sized(content)...),
		stdin: bytes.NewReader(content), limit: staging.MaxClaim, writes: true})
	return out, s.fault("the claim cannot be taken or read", runID, n, "", err)
}
