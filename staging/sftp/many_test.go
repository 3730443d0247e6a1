package sftp

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// A directory of many files is staged, found in place, and repaired where it was changed.
//
// proves DATA-02
func TestFolderOfManyFiles(t *testing.T) {
	eachForm(t, func(t *testing.T, far *farSide) {
		files := 700 // more than are placed in one call, or given to one process
		if far.config.Shell == nil {
			files = 200
		}
		w := far.open(t, nil)
		in, open := anInput("small", "")
		var list []plan.Input
		deep := "in/" + strings.Repeat("a folder with a long name/", 6)
		for i := range files {
			in.DestRelpath = fmt.Sprintf("%s%02d/it's %05d", deep, i%7, i)
			list = append(list, in)
		}
		must(t, w.StageInputs(t.Context(), runA, list, open))
		changed, link, stray := far.path(runA, list[9].DestRelpath), far.path(runA, list[8].DestRelpath), far.path(runA, deep, "stray")
		must(t, os.Chmod(changed, 0o600))
		must(t, os.WriteFile(changed, []byte("SMALL"), 0o600))
		must(t, os.Remove(link))
		must(t, os.Symlink(changed, link))
		must(t, os.Mkdir(stray, 0o700))
		must(t, w.StageInputs(t.Context(), runA, list, open))
		for _, in := range list {
			name := far.path(runA, in.DestRelpath)
			if st, err := os.Lstat(name); err != nil || st.Mode() != 0o400 || content(t, name) != "small" {
				t.Fatalf("the input %s staged again is %v %v, want \"small\" with the mode 0400", in.DestRelpath, st, err)
			}
		}
		for _, name := range []string{stray, far.path(runA, stageDir)} {
			if _, err := os.Lstat(name); err == nil {
				t.Errorf("%s is left after the inputs were staged again, want it removed", name)
			}
		}
	})
}

// The files of an output folder are examined many at a time, and a bad file is still reported with its own fault.
// Undeclared entries of out/ are found, for any number of files in a declared folder and any name of it.
//
// proves DATA-02
func TestOutputsOfManyFiles(t *testing.T) {
	const files, readers = 320, 32
	eachForm(t, func(t *testing.T, far *farSide) {
		var n, opened atomic.Int64
		w := far.open(t, func(c *Config) {
			c.Data = countingData{n: &opened}
			if c.Shell != nil {
				c.Shell = counting{n: &n}
			}
		})
		must(t, w.OpenAttempt(t.Context(), runA, 1, tokenA))
		const folder = "out/it's [a-z]* ?"
		var rels []string
		for i := range files {
			rels = append(rels, fmt.Sprintf("%s/%d/%03d", folder, i%3, i))
			must(t, os.MkdirAll(far.path(runA, "a1", path.Dir(rels[i])), 0o700))
			must(t, os.WriteFile(far.path(runA, "a1", rels[i]), []byte("small"), 0o600))
		}
		must(t, os.Symlink(far.secret, far.path(runA, "a1", folder, "0/link")))
		rels = append(rels, folder+"/0/link", folder+"/1/none")
		before := n.Load()
		opened.Store(0)
		next, wrong := make(chan string, len(rels)), make(chan string, len(rels))
		for _, rel := range rels {
			next <- rel
		}
		close(next)
		var busy sync.WaitGroup
		for range readers {
			busy.Go(func() {
				for rel := range next {
					r, size, err := w.OpenOutput(t.Context(), runA, 1, rel)
					if err == nil && size == 5 {
						r.Close()
						continue
					}
					wrong <- path.Base(rel) + " " + fault.CodeOf(err)
				}
			})
		}
		busy.Wait()
		close(wrong)
		var got []string
		for what := range wrong {
			got = append(got, what)
		}
		if slices.Sort(got); !slices.Equal(got, []string{"link " + run.OutputSymlink, "none " + run.OutputMissing}) {
			t.Errorf("the refused outputs are %q, want the link and the missing one", got)
		}
		t.Logf("%d channels were opened for %d files", opened.Load(), files)
		if far.config.Shell != nil && opened.Load() > maxChannels {
			t.Errorf("%d channels for %d files", opened.Load(), files)
		}
		if far.config.Shell != nil && n.Load()-before > files/2 {
			t.Errorf("%d scripts for %d files", n.Load()-before, files)
		}

		must(t, os.MkdirAll(far.path(runA, "a1/out/x", folder), 0o700))
		for _, rel := range []string{"out/x/" + folder + "/y", "out/it's b ", "out/it's [a-z]* ?b", "out/it's a b"} {
			must(t, os.WriteFile(far.path(runA, "a1", rel), nil, 0o600))
		}
		extra, err := w.Undeclared(t.Context(), runA, 1, []string{"out/none", folder}, 10)
		want := []string{`"out/it's b "`, "out/it's [a-z]* ?b", "out/it's a b", "out/x/" + folder + "/y"}
		if slices.Sort(want); err != nil || !slices.Equal(extra, want) {
			t.Errorf("Undeclared gives %q %v, want %q", extra, err, want)
		}
	})
}

// countingData counts the channels that are opened.
type countingData struct {
	server
	n *atomic.Int64
}

func (d countingData) SFTP(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error) {
	d.n.Add(1)
	return d.server.SFTP(ctx, opts...)
}
