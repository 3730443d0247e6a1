package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/plan"
)

// manifestName is the file with the table of collected files.
const manifestName = "manifest.tsv"

type batchCollectCmd struct {
	app.BatchArgs
	To     string `required:"" help:"The folder to copy into. What an earlier collect copied is checked and not copied again." type:"path" placeholder:"DIR"`
	Layout string `help:"Folder of each sample below it: {sample}, {label}, {tool}, {run}, {row} and {role} stand for its own." default:"{sample}/{tool}/"`
}

// collected is one file of a collect.
type collected struct {
	Sample string `json:"sample"`
	Tool   string `json:"tool"`
	Role   string `json:"role"`
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Run    string `json:"run"`
}

// Run copies.
func (c batchCollectCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var st app.BatchStatusAnswer
		if err := s.call(ctx, "batch.status", c.BatchArgs, &st); err != nil {
			return err
		}
		rows, err := s.batchRows(ctx, app.BatchRowsArgs{BatchArgs: app.BatchArgs{Batch: st.BatchID}, Outputs: true})
		if err != nil {
			return err
		}
		files, err := c.places(st.ToolID, rows)
		if err != nil {
			return err
		}
		copied, err := s.collectAll(ctx, a, st.BatchID, files, c.To)
		if err != nil {
			return err
		}
		out := struct {
			Batch    string      `json:"batch"`
			To       string      `json:"to"`
			Manifest string      `json:"manifest"`
			Copied   int         `json:"copied"`
			Complete bool        `json:"complete"`
			Files    []collected `json:"files"`
		}{st.Name, c.To, filepath.Join(c.To, manifestName), copied, st.Over && st.Counts["succeeded"] == st.Rows, []collected{}}
		for _, f := range files {
			out.Files = append(out.Files, f.collected)
		}
		if err := writeManifest(out.Manifest, out.Files); err != nil {
			return err
		}
		return a.show(out, func(w io.Writer) {
			fmt.Fprintf(w, "%d files of %d samples in %s: %d copied, %d were there; %s lists them\n", len(files), samplesOf(files), c.To, copied,
				len(files)-copied, out.Manifest)
			if !out.Complete {
				fmt.Fprintf(w, "not all of it: %s\n", batchLine(st.BatchDoc))
				printNext(w, fault.Do("batch.status", "batch", st.Name))
			}
		})
	})
}

// placed is a file with its artifact.
type placed struct {
	collected
	doc app.ArtifactDoc
	row int
}

// samplesOf counts the samples that files are of.
func samplesOf(files []placed) int {
	of := map[string]bool{}
	for _, f := range files {
		of[f.Sample] = true
	}
	return len(of)
}

// places returns where each output of a row that succeeded goes: no two to one place, none outside of the folder. Where
// a sample has several rows in one folder the names of all their files have the row, also while only one has succeeded:
// none looks like the whole sample.
func (c batchCollectCmd) places(tool string, rows []app.BatchRowDoc) (out []placed, err error) {
	bad := func(msg string) error {
		return fault.Invalid("", fault.Problem{Code: "BATCH-LAYOUT", Field: "--layout",
			Rule: "a path below --to, of {sample}, {label}, {tool}, {run}, {row}, {role} and plain names", Msg: msg})
	}
	folderOf := func(r app.BatchRowDoc, role string) string {
		return strings.NewReplacer("{sample}", r.Sample, "{label}", cmp.Or(r.Label, r.Sample), "{tool}", tool, "{run}", text(r.RunID),
			"{row}", fmt.Sprint(r.Row), "{role}", role).Replace(c.Layout)
	}
	taken, together := map[string]bool{}, map[string]int{}
	for _, r := range rows {
		together[r.Sample+"\n"+folderOf(r, "")]++
	}
	for _, r := range rows {
		if r.State != "succeeded" {
			continue
		}
		for _, o := range r.Outputs {
			folder := folderOf(r, o.Role)
			if folder = filepath.Clean(folder); !filepath.IsLocal(folder) || strings.ContainsAny(folder, "{}") {
				return nil, bad(fmt.Sprintf("row %d would go to %q", r.Row, folder))
			}
			path := filepath.Join(folder, filepath.Base(o.Name))
			if taken[path] || together[r.Sample+"\n"+folderOf(r, "")] > 1 {
				path = filepath.Join(folder, fmt.Sprintf("row-%d.%s", r.Row, filepath.Base(o.Name)))
			}
			if taken[path] {
				path = filepath.Join(folder, fmt.Sprintf("row-%d.%s.%s", r.Row, o.Role, filepath.Base(o.Name)))
			}
			taken[path] = true
			out = append(out, placed{collected{r.Sample, tool, o.Role, path, o.SizeBytes, o.SHA256, text(r.RunID)},
				app.ArtifactDoc{ArtifactID: o.ArtifactID, Type: o.Type, SizeBytes: o.SizeBytes, ChecksumSHA256: o.SHA256}, r.Row})
		}
	}
	return out, nil
}

// collectors is the number of outputs that are fetched at a time, and of files of a sheet that are imported.
const collectors = 8

// collectAll copies the outputs that are missing, several at a time, and returns how many those were. The first error
// ends it.
func (s *Session) collectAll(ctx context.Context, a *Shell, batch string, files []placed, dir string) (copied int, err error) {
	var fresh atomic.Int64
	ended := 0
	var telling sync.Mutex
	said := func() {
		telling.Lock()
		defer telling.Unlock()
		if ended++; ended%100 == 0 {
			a.Say("%d of %d files", ended, len(files))
		}
	}
	missing := make([]bool, len(files))
	folder := foldersOf(files, dir)
	if err := parallel(ctx, len(files), func(_ context.Context, i int) (err error) {
		if missing[i], err = folder(files[i]); err != nil || missing[i] {
			return err
		}
		if missing[i], err = files[i].missing(dir); err == nil && !missing[i] {
			said()
		}
		return err
	}, nil); err != nil {
		return 0, err
	}
	bundles := bundlesOf(files, missing)
	if err := parallel(ctx, len(bundles), func(ctx context.Context, i int) error {
		return s.alone().collectBundle(ctx, batch, bundles[i], files, dir, func(at int) {
			missing[at] = false
			fresh.Add(1)
			said()
		})
	}, nil); err != nil {
		return int(fresh.Load()), err
	}
	err = parallel(ctx, len(files), func(ctx context.Context, i int) error {
		if !missing[i] {
			return nil
		}
		if err := save(ctx, s.alone(), files[i].doc, filepath.Join(dir, files[i].Path)); err != nil {
			return err
		}
		fresh.Add(1)
		said()
		return nil
	}, nil)
	return int(fresh.Load()), err
}

// foldersOf makes the folder of a file, each once, and reports whether it is new. From one that was there it removes what a collect left
// that was killed.
func foldersOf(files []placed, dir string) func(placed) (fresh bool, err error) {
	targets := map[string]bool{}
	for _, f := range files {
		targets[f.Path] = true
	}
	var made sync.Map
	return func(f placed) (bool, error) {
		at := filepath.Dir(f.Path)
		once, _ := made.LoadOrStore(at, sync.OnceValues(func() (bool, error) {
			path := filepath.Join(dir, at)
			above, err := makeFolders(path)
			if err != nil {
				return false, fault.Wrap(fault.Validation, "target_unwritable", "cannot create the folder", err)
			}
			if len(above) > 0 && above[len(above)-1] == path {
				return true, nil
			}
			dropParts(path, func(name string) bool { return targets[filepath.Join(at, name)] })
			return false, nil
		}))
		return once.(func() (bool, error))()
	}
}

// alone returns a session for another goroutine: state of the next call is not shared.
func (s *Session) alone() *Session { return new(*s) }

// parallel calls do n times, several at a time, and returns the first error, after which no new call begins. It calls
// done after each, with how many are done, one call at a time; nil: no report.
func parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error, done func(n int)) error {
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(collectors)
	var reporting sync.Mutex
	ended := 0
	for i := range n {
		workers.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := do(ctx, i); err != nil {
				return err
			}
			reporting.Lock()
			defer reporting.Unlock()
			if ended++; done != nil {
				done(ended)
			}
			return nil
		})
	}
	return workers.Wait()
}

// missing reports whether an output is still to be copied, and not there with its checksum. Anything else at its place is left alone, and
// is an error.
func (f placed) missing(dir string) (bool, error) {
	path := filepath.Join(dir, f.Path)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, fault.Wrap(fault.Validation, "target_unwritable", "cannot look at "+path, err)
	case info.IsDir() && f.doc.Type == plan.Directory:
		return false, nil // saved whole or not at all
	case info.Mode().IsRegular() && info.Size() == f.Size && sameBytes(path, f.SHA256):
		return false, nil
	}
	return false, fault.New(fault.Conflict, "target_exists", path+" exists and is another file; what was copied before it stays").
		WithNext("name another folder with --to, or remove the file")
}

func sameBytes(path, sum string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == sum
}

// writeManifest replaces the table of all files, whole or not at all.
func writeManifest(path string, files []collected) error {
	if _, err := makeFolders(filepath.Dir(path)); err != nil {
		return fault.Wrap(fault.Validation, "target_unwritable", "cannot create the folder", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".manifest-*")
	if err != nil {
		return fault.Wrap(fault.Validation, "target_unwritable", "cannot write the manifest", err)
	}
	defer os.Remove(f.Name())
	w := csv.NewWriter(f)
	w.Comma = '\t'
	w.Write([]string{"sample", "tool", "role", "path", "size", "sha256", "run"})
	for _, x := range files {
		w.Write([]string{cell(x.Sample), x.Tool, x.Role, cell(x.Path), fmt.Sprint(x.Size), x.SHA256, x.Run})
	}
	w.Flush()
	if err := errors.Join(w.Error(), f.Chmod(0o644), f.Close(), os.Rename(f.Name(), path)); err != nil {
		return fault.Wrap(fault.Validation, "target_unwritable", "cannot write the manifest", err)
	}
	return nil
}
