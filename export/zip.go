package export

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"slurmgate/fault"
)

// Archive is an export that can be written any number of times, each time as the same bytes.
type Archive struct {
	run   Run
	files []file
	open  Opener
}

// file is one entry of the archive.
type file struct {
	name   string
	size   int64
	sha256 string // hex; empty where it is known only once the file is written
	data   []byte // nil: the artifact with this checksum
}

func fileOf(name string, data []byte) file { return file{name, int64(len(data)), sumOf(data), data} }

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Name returns the archive's usual file name.
func (a *Archive) Name() string { return FileName(a.run.RunID) }

// Run returns the run as run.json has it.
func (a *Archive) Run() Run { return a.run }

// Files returns the number of files.
func (a *Archive) Files() int { return len(a.files) }

// Size returns the size of the archive in bytes.
func (a *Archive) Size() int64 { return zipSize(a.files) }

func zipSize(files []file) int64 {
	var at, directory int64
	for _, f := range files {
		e := entry{name: f.name, size: f.size, offset: at}
		at, directory = e.end(), directory+int64(len(e.central()))
	}
	return at + directory + int64(len(ending(int64(len(files)), directory, at)))
}

// WriteTo writes the archive. The bytes of an artifact are read once and compared with their checksum while they are written; if they
// differ the error names the artifact, and what was written is no archive.
func (a *Archive) WriteTo(ctx context.Context, w io.Writer) error {
	return writeZip(w, a.files, func(out io.Writer, f file) error { return copyFile(ctx, out, f, a.open, a.damaged) })
}

// writeZip writes files as a ZIP; content writes the bytes of each, in their order.
func writeZip(w io.Writer, files []file, content func(out io.Writer, f file) error) error {
	out := &counter{w: w}
	var directory []byte
	for _, f := range files {
		e := entry{name: f.name, size: f.size, offset: out.n}
		crc := crc32.NewIEEE()
		if err := out.write(e.local()); err != nil {
			return err
		}
		if err := content(io.MultiWriter(out, crc), f); err != nil {
			return err
		}
		e.crc = crc.Sum32()
		directory = append(directory, e.central()...)
		if err := out.write(e.trailer()); err != nil {
			return err
		}
	}
	at := out.n
	if err := out.write(directory); err != nil {
		return err
	}
	return out.write(ending(int64(len(files)), int64(len(directory)), at))
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) write(p []byte) error {
	_, err := c.Write(p)
	return unwritten(err)
}

func unwritten(err error) error {
	if err == nil || fault.KindOf(err) == fault.Canceled {
		return err
	}
	return fault.Wrap(fault.Transport, "export_unwritten", "the archive could not be written", err)
}

// copyFile writes the bytes of a file; damaged is the fault of one that is not what it was.
func copyFile(ctx context.Context, out io.Writer, f file, open Opener, damaged func(file, error) error) error {
	if f.data != nil {
		_, err := out.Write(f.data)
		return unwritten(err)
	}
	in, err := open(ctx, f.sha256)
	if err != nil {
		return damaged(f, err)
	}
	defer in.Close()
	sum, buf, left := sha256.New(), make([]byte, min(f.size+1, 256<<10)), f.size
	for err == nil {
		if ctx.Err() != nil {
			return fault.Wrap(fault.Canceled, "canceled", "the export was interrupted", ctx.Err())
		}
		var n int
		n, err = in.Read(buf)
		if left -= int64(n); left < 0 {
			return damaged(f, fmt.Errorf("it is longer than %d bytes", f.size))
		}
		sum.Write(buf[:n])
		if _, err := out.Write(buf[:n]); err != nil {
			return unwritten(err)
		}
	}
	if err != io.EOF {
		return damaged(f, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.sha256 {
		return damaged(f, fmt.Errorf("it has the checksum %s, but %s is recorded", got, f.sha256))
	}
	return nil
}

// damaged returns the fault for an artifact whose bytes differ from those of the run.
func (a *Archive) damaged(f file, err error) error {
	id := f.name
	for _, x := range slices.Concat(a.run.Inputs, a.run.Outputs) {
		if x.File == f.name || x.folder() && strings.HasPrefix(f.name, x.File) {
			id = x.ArtifactID
		}
	}
	return fault.Wrap(fault.Internal, "artifact_corrupt", "the stored bytes of "+id+" ("+f.name+") are not what the run had", err).
		WithNext("export with --by-reference, or restore the artifact from a backup").
		WithSteps(fault.Do("artifact.verify", "artifact_id", id))
}

// Signed reports whether there is a receipt in the archive.
func (a *Archive) Signed() bool {
	return slices.ContainsFunc(a.files, func(f file) bool { return f.name == ReceiptFile })
}
