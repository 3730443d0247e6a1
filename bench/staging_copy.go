package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"slurmgate/plan"
	"slurmgate/remote/transfer"
	"slurmgate/staging"
)

// localCopy stages an input on a filesystem of this host, compared with cp and openssl. Ours is durable when it
// returns.
func (m *measurement) localCopy(ctx context.Context) error {
	src, err := m.random(ctx, "large", int64(m.sizes.LargeMB)<<20)
	if err != nil {
		return err
	}
	runs := filepath.Join(m.dir, "runs")
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return err
	}
	s, err := staging.NewShared(staging.Config{RunsDir: runs, GatewayID: "gw-bench"})
	if err != nil {
		return err
	}
	sum, err := exec.CommandContext(ctx, "sha256sum", src).Output()
	if err != nil {
		return err
	}
	in := plan.Input{Role: "reads", ChecksumSHA256: string(sum[:64]), DestRelpath: "in/reads"}
	open := func(context.Context, string) (io.ReadCloser, int64, error) {
		f, err := os.Open(src)
		return f, int64(m.sizes.LargeMB) << 20, err
	}
	shell := func(script string) func() error {
		return func() error { return exec.CommandContext(ctx, "sh", "-ec", script, "sh", src, m.dir+"/copied").Run() }
	}
	n := 0
	took, err := m.contest([]string{"cp", "cp_sync", "stage"}, map[string]func() error{
		"cp":      shell(`rm -f "$2"; cp "$1" "$2"; openssl dgst -sha256 "$2" >/dev/null`),
		"cp_sync": shell(`rm -f "$2"; cp "$1" "$2"; openssl dgst -sha256 "$2" >/dev/null; sync "$2"`),
		"stage": func() error { // the copy before goes first, as cp's does: new blocks of a disk cost more than blocks that were free before
			if err := os.RemoveAll(runs + "/run_" + fmt.Sprintf("%026d", n)); err != nil {
				return err
			}
			n++
			return s.StageInputs(ctx, "run_"+fmt.Sprintf("%026d", n), []plan.Input{in}, open)
		},
	})
	if err != nil {
		return err
	}
	params := []string{fmt.Sprint("mb=", m.sizes.LargeMB), fmt.Sprint("rounds=", m.sizes.Rounds)}
	m.print("local_copy_to_cp_and_openssl", ratioOf(took, "cp", "stage"), "ratio", ">=1.1", params...)
	m.print("local_copy_to_cp_openssl_and_sync", ratioOf(took, "cp_sync", "stage"), "ratio", "", params...)
	return os.RemoveAll(runs)
}

// carried is the task of a process that transfers one file.
type carried struct {
	Addr string
	MB   int
}

// transferMemory measures the peak of a process that puts and gets one file.
func (m *measurement) transferMemory(ctx context.Context, addr string) error {
	peaks := map[int]float64{}
	sizes := []int{1, 100, m.sizes.HugeMB}
	for _, mb := range sizes {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		what, err := json.Marshal(carried{addr, mb})
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, self, "inside", "carry", string(what))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return err
		}
		var peak float64
		if err := json.Unmarshal(out, &peak); err != nil {
			return err
		}
		peaks[mb] = peak
		m.print("transfer_memory_peak", peak, "MB", "<=160", fmt.Sprint("mb=", mb), "connections=8")
	}
	m.print("transfer_memory_growth", peaks[sizes[2]]/peaks[sizes[1]], "ratio", "<=1.25", fmt.Sprint("from_mb=", sizes[1]),
		fmt.Sprint("to_mb=", sizes[2]))
	return nil
}

// carry puts and gets one file, and prints this process's peak of memory.
func carry(ctx context.Context, c carried) error {
	m := &measurement{}
	w, err := m.reach(c.Addr, 0, transfer.MaxConnections)
	if err != nil {
		return err
	}
	defer w.close()
	f := transfer.File{Path: m.at("staging/carried"), Size: int64(c.MB) << 20}
	if _, err := w.pool.Put(ctx, f, zeros{}); err != nil {
		return err
	}
	defer os.Remove(f.Path)
	if _, err := w.pool.Get(ctx, f, 0, nil, io.Discard); err != nil {
		return err
	}
	peak, err := status("VmHWM")
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(peak)
}

// zeros is a file without end.
type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) {
	clear(b)
	return len(b), nil
}
