package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"slurmgate/app"
	"slurmgate/export"
	"slurmgate/fault"
	"slurmgate/httpapi"
)

// Export is the verb that writes the archive of a run.
type Export struct {
	RunID string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one; or a batch's id."`
	exportWords
}

// batchExportCmd writes the archive of a batch.
type batchExportCmd struct {
	app.BatchArgs
	exportWords
}

// exportWords holds the options of any archive.
type exportWords struct {
	To string `help:"Write the archive to this file, or to standard output with -. An existing file is not overwritten. Default: ID.crate.zip in this folder." placeholder:"FILE"`
	app.ExportBounds
}

type exportSaved struct {
	app.Exported
	File   string `json:"saved"`
	SHA256 string `json:"sha256"` // of the archive
}

type batchSaved struct {
	app.BatchExported
	File      string `json:"saved"`
	SizeBytes int64  `json:"size_bytes"`
	SHA256    string `json:"sha256"` // of the archive
}

// Run exports a run. The file is there whole, or not at all.
func (c Export) Run(ctx context.Context, a *Shell) error {
	if strings.HasPrefix(c.RunID, "batch_") {
		return batchExportCmd{BatchArgs: app.BatchArgs{Batch: c.RunID}, exportWords: c.exportWords}.Run(ctx, a)
	}
	return a.With(ctx, func(s *Session) error {
		var out exportSaved
		args := app.ExportArgs{RunID: c.RunID, ExportBounds: c.ExportBounds}
		err := s.call(ctx, "run.export", args, &out.Exported)
		if err == nil {
			out.File, out.SHA256, _, err = c.save(ctx, s, httpapi.ExportArgs{RunID: c.RunID}, out.Exported.File)
		}
		if err != nil || c.To == "-" {
			return err
		}
		return a.show(out, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s, %d files, sha256:%s\n", out.File, bytesText(out.SizeBytes), out.Files, out.SHA256)
			for _, r := range out.ByReference {
				fmt.Fprintf(w, "by reference  %s  %s  %s  %s\n", r.ArtifactID, r.Role, bytesText(r.SizeBytes), r.Why)
			}
			printLines(w, "note  ", out.Notes)
			fmt.Fprintf(w, "Next: slurmgate verify %s\n", out.File)
		})
	})
}

// Run exports a batch. The file is there whole, or not at all.
func (c batchExportCmd) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		var out batchSaved
		args := app.BatchExportArgs{BatchArgs: c.BatchArgs, ExportBounds: c.ExportBounds}
		err := s.call(ctx, "batch.export", args, &out.BatchExported)
		if err == nil {
			a.Say("reading what is recorded about %d rows", out.Rows)
			out.File, out.SHA256, out.SizeBytes, err = c.save(ctx, s, httpapi.ExportArgs{Batch: out.BatchID}, out.BatchExported.File)
		}
		if err != nil || c.To == "-" {
			return err
		}
		return a.show(out, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s, %d rows, sha256:%s\n", out.File, bytesText(out.SizeBytes), out.Rows, out.SHA256)
			fmt.Fprintf(w, "Next: slurmgate verify %s\n", out.File)
		})
	})
}

// save writes an archive to the file that the options name, or else to usual; its checksum covers all of it.
func (c exportWords) save(ctx context.Context, s *Session, args httpapi.ExportArgs, usual string) (name, sha string, size int64,
	err error) {
	args.ByReference, args.MaxMB = c.ByReference, c.MaxMB
	if c.To == "-" {
		return "-", "", 0, s.archive(ctx, args, s.app.Out, nil)
	}
	name = cmp.Or(c.To, usual)
	p, sum := bar{shell: s.app}, sha256.New()
	err = newFile(name, func(f *os.File) error {
		err := s.archive(ctx, args, io.MultiWriter(f, sum), func(w io.Writer, n int64) (io.Writer, error) {
			size = n
			sum.Reset()
			if _, err := f.Seek(0, io.SeekStart); err != nil {
				return nil, err
			}
			return &barWriter{w: w, bar: &p, of: size}, f.Truncate(0)
		})
		if err == nil {
			err = f.Sync()
		}
		return err
	})
	p.end()
	return name, hex.EncodeToString(sum.Sum(nil)), size, err
}

// archive copies the archive of a run or a batch to w, or to what begin makes of it. It begins again, from the first byte, where the
// gateway went away.
func (s *Session) archive(ctx context.Context, args httpapi.ExportArgs, w io.Writer, begin func(w io.Writer, size int64) (io.Writer,
	error)) error {
	n := &countingWriter{w: w}
	return s.retry(ctx, func(c *httpapi.Client) (err error) {
		if begin == nil {
			if err = c.Export(ctx, args, n, func(int64) {}); err != nil && n.written && fault.CodeOf(err) == "gateway_gone" {
				return fault.Wrap(fault.Transport, "export_cut_off", "only part of the archive arrived", err).WithNext("export again")
			}
			return err
		}
		to, failed := w, error(nil)
		err = c.Export(ctx, args, writerFunc(func(p []byte) (int, error) {
			if failed != nil {
				return 0, failed
			}
			return to.Write(p)
		}), func(size int64) { to, failed = begin(w, size) })
		return err
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// barWriter shows how much was written.
type barWriter struct {
	w        io.Writer
	bar      *bar
	done, of int64
}

// Write implements io.Writer.
func (b *barWriter) Write(p []byte) (int, error) {
	n, err := b.w.Write(p)
	b.done += int64(n)
	b.bar.bytes(b.done, b.of)
	return n, err
}

// Verify is the verb that checks an archive.
type Verify struct {
	File string `arg:"" help:"Archive of a run or a batch, or the folder that it was unpacked into."`
	Keys string `help:"File with the gateway's public keys, as its administrator gives them: the output of slurmgate keys --json." placeholder:"FILE"`
}

// notJudged is the exit status of verify for an archive that it cannot judge.
const notJudged = 10

// Run checks an archive in this process: it needs no site file, no gateway and no network. Problems give the exit status of a failed tool.
func (c Verify) Run(ctx context.Context, a *Shell) error {
	var r export.Report
	if err := a.here(ctx, "export.verify", app.VerifyExportArgs{File: c.File, Keys: c.Keys}, &r); err != nil {
		return err
	}
	err := a.show(r, func(w io.Writer) { printReport(w, r) })
	switch {
	case err != nil || r.OK:
		return err
	case len(r.Problems) == 0:
		return WithStatus(notJudged, quietFailure{fault.Tool})
	}
	return quietFailure{fault.Tool}
}

func printReport(w io.Writer, r export.Report) {
	if r.BatchID != "" {
		fmt.Fprintf(w, "batch      %s of %s: %d runs\n", r.BatchID, r.ToolID, r.Runs)
	}
	if r.RunID != "" {
		fmt.Fprintf(w, "run        %s of %s: %s\n", r.RunID, r.ToolID, r.State)
	}
	fmt.Fprintf(w, "checked    %d files (%s), %d events\n", r.Files, bytesText(r.Bytes), r.Events)
	for _, p := range r.Problems {
		fmt.Fprintf(w, "problem    %s\n", strings.TrimPrefix(p.File+": "+p.Message, ": "))
	}
	for _, p := range r.NotJudged {
		fmt.Fprintf(w, "not judged %s\n", strings.TrimPrefix(p.File+": "+p.Message, ": "))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note       %s\n", n)
	}
	fmt.Fprintf(w, "signature  %s\n", r.Signature.Text)
	switch {
	case r.OK:
		fmt.Fprintln(w, "the archive is intact")
	case r.ProblemCount > len(r.Problems):
		fmt.Fprintf(w, "%d problems, of which the first %d are listed: the archive is not what the gateway wrote\n", r.ProblemCount,
			len(r.Problems))
	case r.ProblemCount > 0:
		fmt.Fprintf(w, "%d problems: the archive is not what the gateway wrote\n", r.ProblemCount)
	default:
		fmt.Fprintln(w, "the archive cannot be judged, so it is not called intact")
	}
}
