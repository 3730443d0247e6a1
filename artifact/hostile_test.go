package artifact

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"io"
	"runtime"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/filetype"
)

// endless is a file of size bytes that repeats a text and costs no memory.
type endless struct {
	text string
	size int64
}

func (e endless) ReadAt(p []byte, at int64) (n int, err error) {
	if int64(len(p)) > e.size-at {
		p, err = p[:max(0, e.size-at)], io.EOF
	}
	for n < len(p) && n < len(e.text) {
		n += copy(p[n:], e.text[(at+int64(n))%int64(len(e.text)):])
	}
	for n < len(p) { // what is there repeats itself from here on
		n += copy(p[n:], p[n%len(e.text):n])
	}
	return n, err
}

// allocated returns the total memory that f allocates, in bytes. What it holds at any one time is less.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

const hostileSize = 1 << 40 // bytes of a hostile file

// hostileTexts are files that cost a reader of whole lines, cells or records much memory.
var hostileTexts = map[string]string{"commas": ",", "tabs": "\t", "quotes": `"`, "open quotes": `",` + "\n", "one line": "x",
	"no lines": "\n",
	"comments": "#\n", "a cell a line": "\"\"\n", "returns": "\r", "numbers": "1,2\n", "wide": strings.Repeat("1,", 1000) + "\n",
	"dates": "2026-11-21,2026-11-21T00:00:00\n", "escapes": "\x1b\u202e,", "broken UTF-8": "a,\xff\xfe b\n", "headers": "a,b,c\n"}

// No preview of a file of a terabyte, whatever its lines are, takes more than a few megabytes.
//
// no race: each of its millions of steps is like the one before
// slow: previews a million texts
func TestPreviewsOfHostileText(t *testing.T) {
	for name, text := range hostileTexts {
		f := endless{text, hostileSize}
		var got Table
		var err error
		cost := allocated(func() {
			got, err = PreviewTable(t.Context(), f, f.size, TableQuery{Delimiter: ',', FirstRow: 1e9, MaxRows: 2000, MaxBytes: 64 << 10})
		})
		if err != nil && fault.KindOf(err) != fault.Validation || cost > 24<<20 {
			t.Errorf("a table of %s: %d bytes of memory, %v", name, cost, err)
		}
		cost = allocated(func() {
			got, err = PreviewTable(t.Context(), f, 4<<20, TableQuery{Delimiter: ',', MaxRows: 2000, MaxBytes: 64 << 10})
		})
		if err != nil && fault.KindOf(err) != fault.Validation || cost > 24<<20 {
			t.Errorf("the first rows of %s: %d bytes of memory, %v", name, cost, err)
		}
		if len(got.Rows) > 2000 || len(got.Columns) > maxColumns {
			t.Errorf("%s: %d rows, %d columns", name, len(got.Rows), len(got.Columns))
		}
		cost = allocated(func() {
			if _, err := PreviewText(f, f.size, 64<<10, 2000); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if cost > 24<<20 {
			t.Errorf("a text of %s: %d bytes of memory", name, cost)
		}
	}
}

// The first cells of a line of 34 MiB are shown, and how many of its columns are not.
func TestTableOfOneLine(t *testing.T) {
	const size = 34 << 20
	got, err := PreviewTable(t.Context(), endless{",", size}, size, TableQuery{MaxRows: 10, MaxBytes: 1 << 14})
	if err != nil || !got.Truncated || len(got.Rows) != 1 || got.ColumnsTotal != maxTableScan+1 ||
		!strings.Contains(fmt.Sprint(got.Warnings), "33554432 bytes were read") {
		t.Errorf("PreviewTable = %d rows, %d columns, truncated %t, warnings %q, %v; want 1 row, %d columns, truncated",
			len(got.Rows), got.ColumnsTotal, got.Truncated, got.Warnings, err, maxTableScan+1)
	}
	line := strings.Repeat("cell,", 100_000) + strings.Repeat("x", 3<<20) + "\n1,2\n"
	got, err = PreviewTable(t.Context(), strings.NewReader(line), int64(len(line)), TableQuery{MaxRows: 10, MaxBytes: 1 << 14})
	if err != nil || got.ColumnsTotal != 100_001 || len(got.Rows) != 2 || len(got.Rows[0]) != maxColumns || got.Rows[1][1] != "2" {
		t.Errorf("%d rows, %v", len(got.Rows), err)
	}
}

// leaves is a file whose reader's caller leaves after some reads.
type leaves struct {
	io.ReaderAt
	after int
	leave context.CancelFunc
}

func (l *leaves) ReadAt(p []byte, at int64) (int, error) {
	if l.after--; l.after == 0 {
		l.leave()
	}
	if l.after < -1 {
		return 0, errors.New("it is still read")
	}
	return l.ReaderAt.ReadAt(p, at)
}

// A preview ends when its caller leaves.
func TestPreviewsEndWithTheirCaller(t *testing.T) {
	var picture bytes.Buffer
	must(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 300, 300))))
	for after := 1; after < 4; after++ {
		ctx, leave := context.WithCancel(t.Context())
		f := &leaves{endless{"1,2\n", hostileSize}, after + 1, leave}
		_, err := PreviewTable(ctx, f, hostileSize, TableQuery{FirstRow: 1e9, MaxRows: 1, MaxBytes: 100})
		wantFault(t, err, fault.Canceled, "canceled")

		ctx, leave = context.WithCancel(t.Context())
		g := &leaves{bytes.NewReader(picture.Bytes()), after, leave}
		_, err = NewPictures().PreviewImage(ctx, g, int64(picture.Len()), 64, 1<<20)
		wantFault(t, err, fault.Canceled, "canceled")
	}
}

// hostilePNG returns a PNG with this size in its header and the given data.
func hostilePNG(width, height uint32, chunks ...[]byte) []byte {
	out := []byte("\x89PNG\r\n\x1a\n")
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("IHDR"), width), height)
	for _, c := range append([][]byte{append(head, 16, 6, 0, 0, 0)}, chunks...) {
		out = binary.BigEndian.AppendUint32(out, uint32(len(c)-4))
		out = append(out, c...)
		out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(c))
	}
	return out
}

// A picture with a huge size in its header is refused before anything is drawn, and so is one whose data do not match
// its header, and what is no picture.
//
// proves ARC-01
func TestHostilePictures(t *testing.T) {
	whole := pngOf(t, image.NewGray(image.Rect(0, 0, 100, 100)))
	for name, c := range map[string]struct {
		data []byte
		code string
		most uint64
	}{
		"60,000 × 60,000": {hostilePNG(60_000, 60_000, []byte("IDAT")), "PREVIEW-IMAGE-SIZE", 1 << 20},
		"2³¹ × 1":         {hostilePNG(1<<31-1, 1, []byte("IDAT")), "PREVIEW-IMAGE-SIZE", 1 << 20},
		"1 × 2³¹":         {hostilePNG(1, 1<<31-1, []byte("IDAT")), "PREVIEW-IMAGE-SIZE", 1 << 20},
		"1 × 30,000":      {hostilePNG(1, 30_000), "PREVIEW-IMAGE-SIZE", 1 << 20},
		"2³¹ × 2³¹":       {hostilePNG(1<<31-1, 1<<31-1), "PREVIEW-IMAGE", 1 << 20},
		"0 × 0":           {hostilePNG(0, 0), "PREVIEW-IMAGE", 1 << 20},
		"a text":          {[]byte("no picture"), "PREVIEW-IMAGE", 1 << 20},
		"an empty file":   {nil, "PREVIEW-IMAGE", 1 << 20},
		"cut":             {whole[:len(whole)-20], "PREVIEW-IMAGE", 1 << 20},
		"no data":         {hostilePNG(3000, 3000, []byte("IDAT")), "PREVIEW-IMAGE", 100 << 20},
		"texts":           {hostilePNG(10, 10, append([]byte("zTXt"), make([]byte, 16<<20)...), []byte("IEND")), "PREVIEW-IMAGE", 1 << 20},
	} {
		cost := allocated(func() {
			_, err := NewPictures().PreviewImage(t.Context(), bytes.NewReader(c.data), int64(len(c.data)), 512, 1<<14)
			wantFault(t, err, fault.Validation, c.code)
		})
		if cost > c.most {
			t.Errorf("%s: %d bytes of memory", name, cost)
		}
	}
}

// What detects a type and what checks a file hold nothing of it, whatever the file is.
func TestChecksOfHostileFiles(t *testing.T) {
	bomb := gz(strings.Repeat("\x00", 64<<20))
	files := map[string]string{"bomb": string(bomb), "bomb in a bomb": string(gz(string(bomb))), "members": strings.Repeat(string(gz("")),
		1<<16),
		"brackets": strings.Repeat("[", 8<<20), "a string": `"` + strings.Repeat("x", 8<<20), "BGZF": strings.Repeat(bgzfEnd, 1<<17),
		"a name in gzip": "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff" + strings.Repeat("n", 8<<20),
		"FASTQ":          "@" + strings.Repeat("A", 8<<20), "names in a zip": strings.Repeat("PK\x03\x04"+strings.Repeat("n", 60), 1<<17),
		"PNG": string(hostilePNG(1, 1)) + strings.Repeat("\x00\x00\x00\x00tEXt\x00\x00\x00\x00", 1<<19), "commas": strings.Repeat(",", 8<<20),
		"PDF": "%PDF-" + strings.Repeat("%%", 4<<20), "HDF5": "\x89HDF\r\n\x1a\n" + "\x02\x08\x08" + strings.Repeat("\xff", 8<<20)}
	for name, file := range files {
		for _, typ := range []string{"BAM", "VCF", "FASTQ_GZ", "FASTQ", "JSON", "ZIP", "PNG", "PDF", "H5AD", "TEXT"} {
			cost := allocated(func() {
				_ = filetype.Detect([]byte(file[:min(len(file), filetype.HeadBytes)]), "x.csv", "FASTA", "FASTQ", "SAM")
				c := filetype.NewChecker(typ, filetype.Checks{Rows: true, Blocks: true})
				for from := 0; from < len(file); from += 1 << 20 {
					c.Write([]byte(file[from:min(len(file), from+1<<20)]))
				}
				_ = c.Finish()
				c.Close()
			})
			if most := uint64(len(file)) + 24<<20; cost > most { // the pieces themselves, and a bound
				t.Errorf("%s as %s: %d bytes of memory", name, typ, cost)
			}
		}
	}
}
