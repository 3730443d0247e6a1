// Command reads derives sequencing reads from a reference genome, for the demo
// and the tests, which need real sequence but nothing that has to be downloaded:
//
//	reads -n 300 -length 1000 -stride 55 -every 50 < REF.fa > READS.fq
//
// Read i is the window at i×stride of the first sequence, which is taken for
// circular, as a mitochondrial genome is. Every second read is the reverse
// complement. About one base in -every is substituted by a fixed pseudo-random
// sequence, and its quality says so. The same input and options
// give the same output on every machine and Go release.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// options describe a set of reads. Lengths and positions count bases.
type options struct {
	n, length, stride int
	every             int // mean distance of substitutions
	prefix            string
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 300, "`number` of reads")
	flag.IntVar(&o.length, "length", 1000, "`bases` in a read")
	flag.IntVar(&o.stride, "stride", 55, "`bases` from the start of a read to the start of the next")
	flag.IntVar(&o.every, "every", 50, "mean distance of substitutions in `bases`")
	flag.StringVar(&o.prefix, "prefix", "read", "`text` before the number in a read's name")
	flag.Parse()
	if flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Stdin, o); err != nil {
		fmt.Fprintln(os.Stderr, "reads:", err)
		os.Exit(1)
	}
}

// run writes the reads of o, taken from the first sequence of the FASTA text
// fasta, to w as FASTQ.
func run(w io.Writer, fasta io.Reader, o options) error {
	if o.n < 1 || o.length < 1 || o.stride < 1 || o.every < 1 {
		return errors.New("-n, -length, -stride and -every must be positive")
	}
	ref, err := firstSequence(fasta)
	if err != nil {
		return err
	}
	if o.length > len(ref) {
		return fmt.Errorf("reads of %d bases from a sequence of %d", o.length, len(ref))
	}

	out := bufio.NewWriter(w)
	rnd := lcg(1)
	bases, quality := make([]byte, o.length), make([]byte, o.length)
	for i := range o.n {
		start, strand := i*o.stride%len(ref), '+'
		for j := range bases {
			bases[j] = ref[(start+j)%len(ref)]
		}
		if i%2 == 1 {
			strand = '-'
			reverseComplement(bases)
		}
		for j := range bases {
			quality[j] = 'I' // Phred 40
			if rnd.next(o.every) == 0 {
				bases[j] = substitute(bases[j], rnd.next(3))
				quality[j] = '+' // Phred 10
			}
		}
		// The origin in the comment lets a reader check a mapping by eye.
		fmt.Fprintf(out, "@%s%04d %d%c\n%s\n+\n%s\n", o.prefix, i+1, start+1, strand, bases, quality)
	}
	return out.Flush()
}

// firstSequence returns the first record of a FASTA text in capitals.
func firstSequence(r io.Reader) ([]byte, error) {
	var seq []byte
	records := 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if bytes.HasPrefix(line, []byte(">")) {
			if records++; records > 1 {
				break
			}
			continue
		}
		seq = append(seq, bytes.ToUpper(line)...)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if records == 0 || len(seq) == 0 {
		return nil, errors.New("no FASTA sequence on standard input")
	}
	return seq, nil
}

// complements pairs each base; ambiguity codes other than N become N.
var complements = map[byte]byte{'A': 'T', 'C': 'G', 'G': 'C', 'T': 'A'}

// reverseComplement turns s into the opposite strand, read in its own direction.
func reverseComplement(s []byte) {
	for i, j := 0, len(s)-1; i <= j; i, j = i+1, j-1 {
		s[i], s[j] = complement(s[j]), complement(s[i])
	}
}

func complement(b byte) byte {
	if c, ok := complements[b]; ok {
		return c
	}
	return 'N'
}

// substitute returns one of the three other bases, chosen by k in 0..2.
func substitute(b byte, k int) byte {
	others := bytes.ReplaceAll([]byte("ACGT"), []byte{b}, nil)
	return others[k]
}

// lcg is a linear congruential generator with Knuth's MMIX constants. It is
// written out here because math/rand promises no sequence across releases.
type lcg uint64

// next returns a number in 0..n-1.
func (g *lcg) next(n int) int {
	*g = *g*6364136223846793005 + 1442695040888963407
	return int((uint64(*g) >> 33) % uint64(n))
}
