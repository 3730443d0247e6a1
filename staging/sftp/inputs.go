package sftp

import (
	"bytes"
	"context"

	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/staging"
)

// stageDir has the files that are being sent.
const stageDir = ".stage"

// input is a file of in/.
type input struct {
	plan.Input
	size int64
	temp string // its name in .stage, once it was sent
}

// StageInputs creates <run_id>/in and fills it with private, verified copies; afterwards in/ holds the inputs and nothing else. What is
// there already is hashed on the far side and not sent again. The rest is sent under another name, hashed on both sides, and gets
// its own name when its bytes are right and durable.
//
// A full disk is a Transport fault with code disk_full; an object whose bytes do not match the checksum is a Validation fault with code
// input_checksum.
func (w *Workspace) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open run.Opener) error {
	tree, err := staging.NewTree(inputs)
	if err != nil {
		return err
	}
	if err := check(ctx, runID, 1); err != nil {
		return err
	}
	unlock, err := w.locks.Lock(ctx, runID)
	if err != nil {
		return err
	}
	defer unlock()
	files := make([]input, len(inputs))
	for i, in := range inputs {
		src, size, err := open(ctx, in.ChecksumSHA256)
		if err != nil {
			return staging.Opened(in, err)
		}
		src.Close()
		files[i] = input{Input: in, size: size}
	}
	missing, err := w.far.stage(ctx, runID, tree, files)
	if err != nil {
		return err
	}
	var sent []input
	for i, f := range files {
		if missing[i] {
			sent = append(sent, f)
		}
	}
	if len(sent) == 0 {
		return nil
	}
	if err := w.send(ctx, runID, sent, open); err != nil {
		return err
	}
	return w.far.place(ctx, runID, tree, sent)
}

// sentAtOnce is how many files are being sent at a time: with one after another a small file would take several round trips.
const sentAtOnce = 16

// send sends the bytes of inputs to .stage and notes the names they have there. What is left after an error is removed when the run is
// staged again.
func (w *Workspace) send(ctx context.Context, runID string, list []input, open run.Opener) error {
	msg := "the inputs of " + runID + " cannot be staged"
	var most int64
	for _, f := range list {
		most = max(most, f.size)
	}
	err := w.channels.long(ctx, msg, func(c *sftp.Client) error {
		next, failed := atomic.Int64{}, atomic.Bool{}
		errs := make([]error, min(sentAtOnce, len(list)))
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				for !failed.Load() {
					at := int(next.Add(1)) - 1
					if at >= len(list) {
						return
					}
					if list[at].temp != "" { // sent before the channel was lost
						continue
					}
					if list[at].temp, errs[i] = w.sendOne(ctx, c, runID, list[at], open); errs[i] != nil {
						failed.Store(true)
					}
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	})
	return w.full(ctx, msg, most, err)
}

func (w *Workspace) sendOne(ctx context.Context, c *sftp.Client, runID string, f input, open run.Opener) (temp string, err error) {
	src, size, err := open(ctx, f.ChecksumSHA256)
	if err != nil {
		return "", staging.Opened(f.Input, err)
	}
	defer src.Close()
	temp = random()
	if file, here := src.(io.ReaderAt); here && w.cfg.Pool != nil {
		sum, err := w.cfg.Pool.Put(ctx, transfer.File{Path: w.onData(runID, stageDir, temp), Size: size}, file)
		switch {
		case fault.Is(err, fault.NotFound):
			return "", fault.Wrap(fault.Transport, "data_host_stale", "the SFTP server does not show the run's folder yet", err)
		case err == nil && sum != f.ChecksumSHA256:
			return "", staging.WrongInput(f.Input, sum)
		}
		return temp, err
	}
	dst, err := c.OpenFile(w.onData(runID, stageDir, temp), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	from := &source{r: io.TeeReader(io.LimitReader(src, size+1), h)}
	_, err = dst.ReadFromWithConcurrency(from, 64)
	if from.err != nil {
		dst.Close()
		return "", fault.Wrap(fault.Transport, "filesystem", "input "+f.DestRelpath+" cannot be read", from.err)
	}
	if err := finish(c, dst, err); err != nil {
		return "", err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.ChecksumSHA256 {
		return "", staging.WrongInput(f.Input, got)
	}
	return temp, nil
}

// source remembers that it was the source that failed.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// full looks why a write was refused: a server says only that it was.
func (w *Workspace) full(ctx context.Context, msg string, size int64, err error) error {
	if fault.CodeOf(err) != "filesystem" {
		return err
	}
	free, inodes, limited, ferr := w.Free(ctx)
	if ferr == nil && (free < size || limited && inodes == 0) {
		return staging.DiskFull(msg, err)
	}
	return err
}

// folders and their number, as the scripts take them.
func folders(t staging.Tree) []string {
	return append([]string{strconv.Itoa(len(t.Dirs))}, slices.Sorted(maps.Keys(t.Dirs))...)
}

// sized are the size and the checksum of bytes, as the scripts take them.
func sized(data []byte) []string {
	sum := sha256.Sum256(data)
	return []string{strconv.Itoa(len(data)), hex.EncodeToString(sum[:])}
}

func (s *shelled) stage(ctx context.Context, runID string, t staging.Tree, files []input) ([]bool, error) {
	const msg = "the inputs cannot be staged"
	args := append(append([]string{runID}, folders(t)...), strconv.Itoa(len(files)))
	for _, f := range files {
		args = append(args, f.DestRelpath, strconv.FormatInt(f.size, 10), f.ChecksumSHA256)
	}
	out, err := s.run(ctx, call{script: inputScript, name: "stage", args: args, limit: int64(8 * (len(files) + 1)), writes: true})
	if err != nil {
		return nil, s.fault(msg, runID, 1, "", err)
	}
	words := bytes.Fields(out)
	if len(words) != len(files)+1 || string(words[len(files)]) != "end" {
		return nil, fault.New(fault.Transport, "far_shell", "the script on the login node gave half an answer")
	}
	missing := make([]bool, len(files))
	for i := range files {
		missing[i] = string(words[i]) != "have"
	}
	return missing, nil
}

func (s *shelled) place(ctx context.Context, runID string, t staging.Tree, files []input) error {
	args := append(append([]string{runID}, folders(t)...), strconv.Itoa(len(files)))
	for _, f := range files {
		args = append(args, f.temp, f.DestRelpath, strconv.FormatInt(f.size, 10), f.ChecksumSHA256)
	}
	_, err := s.run(ctx, call{script: inputScript, name: "place", args: args, writes: true})
	return s.fault("the inputs cannot be staged", runID, 1, "", err)
}
