package filetype

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Each record must be whole; what is legal passes, however the lines are folded. The message names the record.
func TestFASTQ(t *testing.T) {
	two := record + record
	const third = "record 3, which begins at line 9: "
	for _, c := range []struct{ name, file, want string }{
		{"records", two, ""},
		{"no newline at the end", strings.TrimSuffix(two, "\n"), ""},
		{"carriage returns", strings.ReplaceAll(two, "\n", "\r\n"), ""},
		{"carriage return at the end", strings.TrimSuffix(strings.ReplaceAll(two, "\n", "\r\n"), "\n"), ""},
		{"folded", "@r x\nACG\nT\n+r x\n@+\nII\n@s\nA\n+\n@\n", ""},
		{"a quality that looks like a header", "@r\nACGT\n+\n@r2+\n" + record, ""},
		{"a read of no letters", "@r\n\n+\n\n" + record, ""},
		{"a read without a sequence line", "@r\n+\n\n" + record, ""},
		{"a read of no letters at the end", "@r\n\n+\n", ""},
		{"empty lines", "\n" + record + "\n\r\n" + record + "\n\n", ""},
		{"nothing", "", ""},
		{"one long read", longRead(300_000), ""},
		{"every quality", "@r\n" + strings.Repeat("N", 94) + "\n+\n" + every() + "\n", ""},

		{"line of sequence missing", two + "@r\n+\nIIII\n" + record, third + "its sequence has 0 letters, and its quality is longer"},
		{"line with + missing", two + "@r\nACGT\nIIII\n" + record, third + "line 12 begins with @, but no line with +"},
		{"line with + missing at the end", two + "@r\nACGT\nIIII\n", third + "the file ends before its line with +"},
		{"line of quality missing", two + "@r\nACGTACGT\n+\n" + record, third + `line 12 has a byte that does not belong in a quality: " "`},
		{"line of quality missing, plain names", two + "@r\nACG\n+\n@r10\nACGT\n+\nIIII\n",
			third + "its sequence has 3 letters, and its quality is longer"},
		{"quality too short, long reads", two + "@r\n" + noise(400) + "\n+\nII\n" + record,
			third + "its sequence has 400 letters, but its first line of quality has 2 characters"},
		{"header missing", two + "ACGT\n+\nIIII\n", `no record follows record 2: line 9 begins with 'A', not with @`},
		{"quality too short", two + "@r\nACGT\n+\nII\n" + record,
			third + "its sequence has 4 letters, but its first line of quality has 2 characters"},
		{"quality too long", two + "@r\nACGT\n+\nIIIII\n" + record, third + "its sequence has 4 letters, and its quality is longer"},
		{"garbage at the end", two + "garbage\n", "line 9 begins with 'g'"},
		{"zeros at the end", two + strings.Repeat("\x00", 99), `line 9 begins with '\x00'`},
		{"garbage in a sequence", two + "@r\nAC T\n+\nIIII\n", third + `line 10 has a byte that does not belong in a sequence: " "`},
		{"garbage in a quality", two + "@r\nACGT\n+\nII\x80I\n", `line 12 has a byte that does not belong in a quality: "\x80"`},
		{"carriage return in a sequence", "@r\nAC\rGT\n+\nIIIII\n", `line 2 has a byte that does not belong in a sequence: "\r"`},
		{"two carriage returns", "@r\nACGT\r\r\n+\nIIII\n", `"\r"`},
		{"cut in a header", two + "@r", third + "the file ends before its line with +"},
		{"cut in a sequence", two + "@r\nAC", "the file ends before its line with +"},
		{"cut before a quality", two + "@r\nACGT\n+", "the file ends within its quality, after 0 of 4 characters"},
		{"cut in a quality", two + "@r\nACGT\n+\nII", "the file ends within its quality, after 2 of 4 characters"},
		{"FASTA", ">r\nACGT\n", `it does not begin with a record: line 1 begins with '>', not with @`},
		{"FASTA after FASTQ", two + ">r\nACGT\n", `line 9 begins with '>'`},
	} {
		for _, step := range []int{1 << 20, 1, 3, 4096} {
			if got, _ := verdict("FASTQ", c.file, step, Checks{}); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s in pieces of %d: %q, want %q", c.name, step, got, c.want)
			}
		}
		if got, _ := verdict("FASTQ_GZ", string(gz(c.file)), 1<<20, Checks{}); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, compressed: %q, want %q", c.name, got, c.want)
		}
	}
}

// every returns each character a quality may have.
func every() string {
	var b strings.Builder
	for c := '!'; c <= '~'; c++ {
		b.WriteRune(c)
	}
	return b.String()
}

// A line of any length passes without being buffered.
func TestFASTQMemory(t *testing.T) {
	letters, quality := []byte(noise(64<<10)), []byte(strings.Repeat("I", 64<<10))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	check := NewChecker("FASTQ", Checks{})
	for _, part := range []struct {
		piece  []byte
		pieces int
	}{{[]byte("@r\n"), 1}, {letters, 1000}, {[]byte("\n+\n"), 1}, {quality, 1000}} {
		for range part.pieces {
			check.Write(part.piece)
		}
	}
	if err := check.Finish(); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated for a record of %d", n, 2000*len(letters))
	}
}

// slowFASTQ applies the same rule to whole lines.
func slowFASTQ(file string) bool {
	lines := strings.SplitAfter(file, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(strings.TrimSuffix(l, "\n"), "\r")
	}
	ended := strings.HasSuffix(file, "\n") || file == ""
	if ended {
		lines = lines[:len(lines)-1]
	}
	next := func() (line string, ok bool) {
		if len(lines) == 0 {
			return "", false
		}
		line, lines = lines[0], lines[1:]
		return line, true
	}
	only := func(s string, not *[256]uint8) bool {
		for i := range len(s) {
			if not[s[i]] != 0 {
				return false
			}
		}
		return true
	}
	for {
		line, ok := next()
		if !ok {
			return true
		}
		if line == "" {
			continue
		}
		if line[0] != '@' {
			return false
		}
		bases := 0
		for {
			if line, ok = next(); !ok {
				return false
			}
			if strings.HasPrefix(line, "+") {
				break
			}
			if bases += len(line); !only(line, &notBase) {
				return false
			}
		}
		for first := true; first || bases > 0; first = false {
			if line, ok = next(); !ok {
				if bases > 0 {
					return false
				}
				break
			}
			if bases -= len(line); bases < 0 || !only(line, &notQuality) {
				return false
			}
		}
	}
}

// The walk agrees with the slow rule, whatever the pieces.
func FuzzFASTQ(f *testing.F) {
	for _, s := range []string{record, record + record, "@r\nACG\nT\n+\n@+\nII\n", "@r\r\nA\r\n+\r\nI\r\n",
		"@r\n\n+\n\n", "@r\n\n+", "@r\nA\n+\nII\n", "@r\nA\nI\n@s", "\n\r\n", "@\nA\r", "x"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		got, _ := verdict("FASTQ", string(data), int(step)+1, Checks{})
		if want := slowFASTQ(string(data)); (got == "") != want {
			t.Errorf("%q in pieces of %d: %q, the slow rule: %v", data, step+1, got, want)
		}
		if got == "" && len(data) < HeadBytes && strings.HasPrefix(string(data), "@r\n") && !looksFASTQ(data, false, true) {
			t.Errorf("%q passes the check and is not detected as FASTQ", data)
		}
	})
}

// illumina returns about n bytes of reads of 150 letters with qualities that compress as real ones do.
func illumina(n int) string {
	r := rand.New(rand.NewPCG(3, 4))
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "@A00123:45:HXXXXDSXX:1:1101:%d:%d 1:N:0:ACGT\n", i, r.IntN(30_000))
		for range 150 {
			b.WriteByte("ACGT"[r.IntN(4)])
		}
		b.WriteString("\n+\n")
		for range 150 {
			b.WriteByte("FFFFFFFFFFF:,#"[r.IntN(14)])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// BenchmarkFASTQ compares following the records of a compressed file with inflating it alone.
func BenchmarkFASTQ(b *testing.B) {
	text := illumina(16 << 20)
	packed := gz(text)
	var spent [2]time.Duration
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for i, check := range []rule{nothing, checkFASTQ} {
			began := time.Now()
			if err := inflated(bufio.NewReader(bytes.NewReader(packed)), nil, true, leastInflated, check); err != nil {
				b.Fatal(err)
			}
			spent[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "of-inflating-alone")
}
