package artifact

import (
	"bytes"
	"regexp"
	"slices"
)

// Told are types beyond those every gateway knows that [Detect] tells by content, where the domain has them.
var Told = []string{"FASTA", "FASTQ", "SAM"}

// toldPacked are the same, compressed.
var toldPacked = []string{"FASTA_GZ", "SAM_GZ"}

// detectOwn looks for one of the kinds among the domain's own types.
func detectOwn(text []byte, own, kinds []string) string {
	for _, typ := range kinds {
		if slices.Contains(own, typ) && looksLike(text, typ) {
			return typ
		}
	}
	return ""
}

func looksLike(text []byte, typ string) bool {
	switch typ {
	case "FASTA", "FASTA_GZ":
		return looksFASTA(text)
	case "FASTQ":
		return looksFASTQ(text)
	case "SAM", "SAM_GZ":
		return samHeader.Match(text)
	}
	return false
}

// samHeader is a first header line of the SAM specification, 1.3.
var samHeader = regexp.MustCompile(`^@(HD\tVN:[0-9]+\.[0-9]+|SQ\t[A-Za-z0-9]{2}:|RG\tID:|PG\tID:)`)

// looksFASTA checks the first record as far as it is there: >name, then lines of residues.
func looksFASTA(b []byte) bool {
	lines := bytes.SplitN(b, []byte("\n"), 4)
	if len(lines[0]) < 2 || lines[0][0] != '>' || len(lines) < 2 {
		return false
	}
	residues := bytes.TrimSuffix(lines[1], []byte("\r"))
	for _, c := range residues {
		if !('A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '*' || c == '-' || c == '.') {
			return false
		}
	}
	return len(residues) > 0
}

// logLine is a line that begins with a date and a time of day.
var logLine = regexp.MustCompile(`^\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}`)

const (
	fewestLogLines = 5 // below these a text could be anything
	fewestRows     = 3
)

// looksLogged reports whether four lines in five begin with a time.
func looksLogged(head []byte) bool {
	lines, timed := 0, 0
	for line := range bytes.Lines(wholeLines(head)) {
		if lines++; logLine.Match(line) {
			timed++
		}
	}
	return lines >= fewestLogLines && timed*5 >= lines*4
}

// detectNameless recognises tables and Markdown by content alone, where it leaves little doubt.
func detectNameless(head []byte) string {
	lines := bytes.Count(wholeLines(head), []byte("\n"))
	first, _, _ := bytes.Cut(head, []byte("\n"))
	switch {
	case lines >= fewestRows && bytes.IndexByte(head, '\t') >= 0 && evenTabs(head) && bytes.IndexByte(lastLine(head), '\t') >= 0:
		return "TSV"
	case lines >= fewestRows && bytes.IndexByte(first, ',') > 0 && !bytes.Contains(head, []byte(", ")) && evenCSV(head):
		return "CSV"
	case bytes.HasPrefix(head, []byte("# ")) && bytes.Contains(head, []byte("\n## ")):
		return "MD"
	}
	return "TEXT"
}

// lastLine is the last whole line of the head, so never a comment in front of a table.
func lastLine(head []byte) []byte {
	b := bytes.TrimRight(wholeLines(head), "\r\n")
	return b[bytes.LastIndexByte(b, '\n')+1:]
}
