package sftp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/staging"
)

// stageDir holds the files that are being sent.
const stageDir = ".stage"

// stageState is the progress of an input's staging, as inputs.sh prints it.
type stageState string

const (
	inPlace stageState = "have" // it has its name, and its bytes are right
	sent    stageState = "sent" // it is complete in .stage
	missing stageState = "need"
)

// input is a file of in/.
type input struct {
	plan.Input
	size int64
	temp string // its name in .stage
}

// tempName returns the name of an input in .stage. The input determines it, so a restarted gateway finds the file
// again.
func tempName(in plan.Input) string {
	sum := sha256.Sum256([]byte(in.ChecksumSHA256 + "\n" + in.DestRelpath))
	return hex.EncodeToString(sum[:16])
}

// StageInputs creates <run_id>/in and fills it with private, verified copies; afterwards in/ holds the inputs and
// nothing else. Existing files are hashed on the far side and not sent again if they are right. The others are sent
// under another name, hashed on both sides, and get their own name when their bytes are right and durable. An
// interrupted transfer of a large file is continued, also after a restart of the gateway.
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
		files[i] = input{in, size, tempName(in)}
	}
	slices.SortStableFunc(files, func(a, b input) int { return cmp.Compare(path.Dir(a.DestRelpath), path.Dir(b.DestRelpath)) })
	states, err := w.far.stage(ctx, runID, tree, files)
	if err != nil {
		return err
	}
	var unplaced, unsent []input
	for i, f := range files {
		if states[i] != inPlace {
			unplaced = append(unplaced, f)
		}
		if states[i] == missing {
			unsent = append(unsent, f)
		}
	}
	if len(unplaced) == 0 {
		return nil
	}
	if err := w.send(ctx, runID, unsent, open); err != nil {
		return err
	}
	return w.far.place(ctx, runID, tree, unplaced)
}

// send sends the bytes of inputs to .stage, many at a time. After an error the next call continues, also in a restarted
// gateway.
func (w *Workspace) send(ctx context.Context, runID string, list []input, open run.Opener) error {
	err := w.cfg.Pool.PutMany(ctx, func(yield func(transfer.File, func() (io.ReaderAt, error)) bool) {
		for _, f := range list {
			file := transfer.File{Path: w.onData(runID, stageDir, f.temp), Size: f.size, SHA256: f.ChecksumSHA256,
				Name: "input " + f.DestRelpath, ReadBack: w.cfg.Shell == nil,
				Unsynced: w.cfg.Shell != nil && f.size <= transfer.ChunkBytes} // the script hashes and syncs many at once
			if !yield(file, func() (io.ReaderAt, error) { return openSource(ctx, f.Input, open) }) {
				return
			}
		}
	})
	switch fault.CodeOf(err) {
	case transfer.CodeMissing:
		return fault.Wrap(fault.Transport, "data_host_stale", "the SFTP server does not show the run's folder yet", err)
	case transfer.CodeSum:
		return staging.Damaged("an input is damaged in the artifact store", err)
	}
	return staging.Failed("the inputs of "+runID+" cannot be staged", err)
}

// folders returns the number and names of a tree's folders, as arguments of the scripts.
func folders(t staging.Tree) []string {
	return append([]string{strconv.Itoa(len(t.Dirs))}, slices.Sorted(maps.Keys(t.Dirs))...)
}

// sized returns the size and the checksum of data, as arguments of the scripts.
func sized(data []byte) []string {
	sum := sha256.Sum256(data)
	return []string{strconv.Itoa(len(data)), hex.EncodeToString(sum[:])}
}

func (s *shelled) stage(ctx context.Context, runID string, t staging.Tree, files []input) ([]stageState, error) {
	const msg = "the inputs cannot be staged"
	args := append(append([]string{runID}, folders(t)...), strconv.Itoa(len(files)))
	for _, f := range files {
		args = append(args, f.temp, f.DestRelpath, strconv.FormatInt(f.size, 10), f.ChecksumSHA256)
	}
	out, err := s.run(ctx, call{script: inputScript, name: "stage", args: args, limit: int64(8 * (len(files) + 1)), writes: true})
	if err != nil {
		return nil, s.fault(msg, runID, 1, "", err)
	}
	words := bytes.Fields(out)
	if len(words) != len(files)+1 || string(words[len(files)]) != "end" {
		return nil, fault.New(fault.Transport, "far_shell", "the script on the login node gave half an answer")
	}
	states := make([]stageState, len(files))
	for i := range files {
		states[i] = stageState(words[i])
	}
	return states, nil
}

// placedAtOnce bounds the files that get their names in one call of the script, whose cost for each file grows with
// their number.
const placedAtOnce = 500

func (s *shelled) place(ctx context.Context, runID string, t staging.Tree, files []input) error {
	for len(files) > 0 {
		part := files[:min(placedAtOnce, len(files))]
		files = files[len(part):]
		args := []string{runID, "0", strconv.Itoa(len(part))}
		if len(files) == 0 { // the last
			args = append(append([]string{runID}, folders(t)...), strconv.Itoa(len(part)))
		}
		for _, f := range part {
			args = append(args, f.temp, f.DestRelpath, strconv.FormatInt(f.size, 10), f.ChecksumSHA256)
		}
		if _, err := s.run(ctx, call{script: inputScript, name: "place", args: args, writes: true}); err != nil {
			return s.fault("the inputs cannot be staged", runID, 1, "", err)
		}
	}
	return nil
}
