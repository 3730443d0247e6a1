package artifact

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// HeadBytes is how much of a file's beginning [Detect] looks at. A shorter head is taken for the whole file.
const HeadBytes = 64 << 10

// Detect returns the artifact type of a file from its first bytes and, where these leave a choice, from its
// name. The answer is one of the types every gateway knows, or one of own, the domain's: those of [Told] are found by
// content where the domain has them, and are TEXT or UNKNOWN elsewhere. A compressed VCF is a VCF, as the tools that read
// one read the other.
func Detect(head []byte, name string, own ...string) string {
	head = head[:min(len(head), HeadBytes)]
	if bytes.HasPrefix(head, []byte(magicGzip)) {
		return detectGzip(head, own)
	}
	ext := strings.ToLower(filepath.Ext(name))
	for _, f := range formats {
		if !slices.ContainsFunc(f.magics, func(m string) bool { return bytes.HasPrefix(head, []byte(m)) }) {
			continue
		}
		if f.typ == "H5AD" && ext != ".h5ad" {
			return "UNKNOWN" // HDF5 holds much else
		}
		return f.typ
	}
	if !isText(head) {
		return "UNKNOWN"
	}
	if typ := detectOwn(head, own, Told); typ != "" {
		return typ
	}
	return detectText(head, ext)
}

// detectGzip looks inside. What is inflated is bounded, whatever the head promises.
func detectGzip(head []byte, own []string) string {
	zr, err := gzip.NewReader(bytes.NewReader(head))
	if err != nil {
		return "UNKNOWN"
	}
	blocked := bgzfSize(zr.Extra) > 0
	// The head may end within the stream: what came out before the error counts.
	inner, _ := io.ReadAll(io.LimitReader(zr, HeadBytes))
	switch {
	case blocked && bytes.HasPrefix(inner, []byte("BAM\x01")):
		return "BAM"
	case bytes.HasPrefix(inner, []byte(magicVCF)):
		return "VCF"
	case looksFASTQ(inner):
		return "FASTQ_GZ"
	}
	if isText(inner) {
		if typ := detectOwn(inner, own, toldPacked); typ != "" {
			return typ
		}
	}
	return "UNKNOWN"
}

// isText reports whether b is UTF-8, perhaps cut within its last rune, without NUL.
func isText(b []byte) bool {
	if bytes.IndexByte(b, 0) >= 0 {
		return false
	}
	if utf8.Valid(b) {
		return true
	}
	for cut := 1; cut < utf8.UTFMax && cut <= len(b) && len(b) >= HeadBytes; cut++ {
		if tail := b[len(b)-cut:]; utf8.RuneStart(tail[0]) {
			return !utf8.FullRune(tail) && utf8.Valid(b[:len(b)-cut])
		}
	}
	return false
}

func detectText(head []byte, ext string) string {
	start := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	lower := bytes.ToLower(start[:min(len(start), 16)])
	switch {
	case bytes.HasPrefix(lower, []byte("<!doctype html")), bytes.HasPrefix(lower, []byte("<html")):
		return "HTML"
	case isJSON(head, ext == ".json"):
		return "JSON"
	case (ext == ".tsv" || ext == ".tab") && evenTabs(head):
		return "TSV"
	case ext == ".csv" && evenCSV(head):
		return "CSV"
	case ext == ".md" || ext == ".markdown":
		return "MD"
	case ext == ".log", looksLogged(head):
		return "LOG"
	case ext == "": // a stream, or a name that says nothing
		return detectNameless(head)
	}
	return "TEXT"
}

// isJSON reports whether head is one JSON value, or the beginning of one where the head may be cut. A bare
// number, word or string is JSON only in a file that is called so.
func isJSON(head []byte, named bool) bool {
	body := bytes.TrimLeft(head, " \t\r\n")
	if len(body) == 0 || body[0] != '{' && body[0] != '[' && !named {
		return false
	}
	if len(head) < HeadBytes {
		return json.Valid(head)
	}
	dec := json.NewDecoder(bytes.NewReader(head))
	depth := 0
	for n := 0; ; n++ {
		tok, err := dec.Token()
		if err != nil {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		}
		if depth == 0 && n > 0 { // a second value
			return false
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// wholeLines cuts a line that the head ends within.
func wholeLines(head []byte) []byte {
	if i := bytes.LastIndexByte(head, '\n'); len(head) >= HeadBytes && i >= 0 {
		return head[:i+1]
	}
	return head
}

// evenTabs reports whether all lines but comments have the same number of columns.
func evenTabs(head []byte) bool {
	columns := -1
	for line := range bytes.Lines(wholeLines(head)) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		n := bytes.Count(line, []byte("\t"))
		if columns >= 0 && n != columns {
			return false
		}
		columns = n
	}
	return true
}

func evenCSV(head []byte) bool {
	r := csv.NewReader(bytes.NewReader(wholeLines(head)))
	r.Comment = '#'
	r.ReuseRecord = true
	for {
		_, err := r.Read() // refuses a record with another number of fields than the first
		if err == io.EOF {
			return true
		}
		if err != nil {
			// A quoted field may hold the newline that the head was cut at.
			return len(head) >= HeadBytes && errors.Is(err, csv.ErrQuote) && r.InputOffset() == int64(len(wholeLines(head)))
		}
	}
}
