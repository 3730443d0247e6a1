package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"regexp"
)

// bench compares a tool of the genomics domain with the same Debian programs called directly, with the same arguments,
// in the root of the same image.
type bench struct {
	tool   string
	image  string
	inputs map[string]string // argument → files, "data:NAME" or "TOOL:PATH" of another bench's output; several with commas
	at     map[string]string // where the program sees a file, by the file as in inputs
	params []string          // other arguments
	pipe   [][]string        // the programs
	stdout string            // file below out that gets the last one's standard output
	output map[string]string // role → file or folder below out
	dated  string            // which of its files have the time in them, which is left out of the comparison; empty: none, all bytes count
	left   string            // a file that is not compared, because it is about the call alone
}

const readGroup = `@RG\tID:orang\tSM:orang`

var sorting = []string{"samtools", "sort", "--no-PG", "--output-fmt=bam", "-@", "1", "-m", "768M",
	"-T", "/tmp/sort", "-o", "/work/out/aligned.bam", "-"}

// genomicsBenches: a bench comes after those whose outputs it uses.
var genomicsBenches = []bench{
	{tool: "samtools.sort", image: "samtools", inputs: map[string]string{"bam": "data:aln.bam"},
		at:     map[string]string{"data:aln.bam": "input.bam"},
		params: []string{"order=name"}, output: map[string]string{"sorted": "sorted.bam"},
		pipe: [][]string{{"samtools", "sort", "--no-PG", "--output-fmt=bam", "-@", "1", "-m", "768M", "-T", "/tmp/sort", "-n",
			"-o", "/work/out/sorted.bam", "/work/in/input.bam"}}},
	{tool: "samtools.index", image: "samtools", inputs: map[string]string{"bam": "data:aln.bam"},
		at:     map[string]string{"data:aln.bam": "input.bam"},
		output: map[string]string{"index": "index.bai"},
		pipe:   [][]string{{"samtools", "index", "-b", "-@", "1", "-o", "/work/out/index.bai", "/work/in/input.bam"}}},
	{tool: "samtools.stats", image: "samtools", inputs: map[string]string{"bam": "data:aln.bam"},
		at:     map[string]string{"data:aln.bam": "input.bam"},
		output: map[string]string{"stats": "stats.txt"}, stdout: "stats.txt",
		pipe: [][]string{{"samtools", "stats", "-@", "1", "/work/in/input.bam"}}},
	{tool: "samtools.faidx", image: "samtools", inputs: map[string]string{"reference": "data:MT-human.fa"},
		at: map[string]string{"data:MT-human.fa": "reference.fa"}, output: map[string]string{"index": "reference.fa.fai"},
		pipe: [][]string{{"samtools", "faidx", "--fai-idx", "/work/out/reference.fa.fai", "/work/in/reference.fa"}}},
	{tool: "bwa.index", image: "aligners", inputs: map[string]string{"reference": "data:MT-human.fa"},
		at: map[string]string{"data:MT-human.fa": "reference.fa"}, output: map[string]string{"index": "index"},
		pipe: [][]string{{"bwa", "index", "-p", "/work/out/index/reference", "/work/in/reference.fa"}}},
	// Apptainer starts a program by its whole path, and the header of the BAM file has the words that bwa was called with.
	{tool: "bwa.mem", image: "aligners", inputs: map[string]string{"index": "bwa.index:index", "reads": "data:reads-small.fastq.gz"},
		at:     map[string]string{"bwa.index:index": "index", "data:reads-small.fastq.gz": "reads_1.fastq.gz"},
		params: []string{"sample=orang"}, output: map[string]string{"aligned": "aligned.bam"},
		pipe: [][]string{{"/usr/bin/bwa", "mem", "-t", "3", "-K", "100000000", "-R", readGroup, "/work/in/index/reference",
			"/work/in/reads_1.fastq.gz"}, sorting}},
	{tool: "minimap2.align", image: "aligners", inputs: map[string]string{"reference": "data:MT-human.fa.gz",
		"reads": "data:reads.fastq.gz"},
		at:     map[string]string{"data:MT-human.fa.gz": "reference.fa", "data:reads.fastq.gz": "reads.fastq.gz"},
		params: []string{"sample=orang", "preset=map-hifi"}, output: map[string]string{"aligned": "aligned.bam"},
		pipe: [][]string{{"minimap2", "-a", "-x", "map-hifi", "-t", "3", "-R", readGroup, "/work/in/reference.fa",
			"/work/in/reads.fastq.gz"}, sorting}},
	{tool: "samtools.merge", image: "samtools", inputs: map[string]string{"bams": "data:aln.bam,data:aln.bam"},
		at:     map[string]string{"data:aln.bam": "bams/0001.bam,bams/0002.bam"},
		output: map[string]string{"merged": "merged.bam"},
		pipe: [][]string{{"samtools", "merge", "--no-PG", "-s", "1", "-@", "1", "-o", "/work/out/merged.bam", "/work/in/bams/0001.bam",
			"/work/in/bams/0002.bam"}}},
	{tool: "bcftools.call", image: "bcftools", inputs: map[string]string{"bams": "data:aln.bam,minimap2.align:aligned.bam",
		"reference": "data:MT-human.fa", "fai": "samtools.faidx:reference.fa.fai", "regions": "data:genes.bed"},
		at: map[string]string{"data:aln.bam": "bams/0001.bam", "minimap2.align:aligned.bam": "bams/0002.bam",
			"data:MT-human.fa": "reference/reference.fa", "samtools.faidx:reference.fa.fai": "reference/reference.fa.fai",
			"data:genes.bed": "regions.bed"},
		params: []string{"ploidy=1"}, output: map[string]string{"variants": "variants.vcf.gz"},
		pipe: [][]string{{"bcftools", "mpileup", "--no-version", "--output-type", "u", "--fasta-ref",
			"/work/in/reference/reference.fa", "--max-depth",
			"250", "--targets-file", "/work/in/regions.bed", "/work/in/bams/0001.bam", "/work/in/bams/0002.bam"},
			{"bcftools", "call", "--no-version", "--multiallelic-caller", "--variants-only", "--ploidy", "1",
				"--output-type", "z", "--output",
				"/work/out/variants.vcf.gz", "-"}}},
	{tool: "bcftools.stats", image: "bcftools", inputs: map[string]string{"variants": "bcftools.call:variants.vcf.gz"},
		at:     map[string]string{"bcftools.call:variants.vcf.gz": "variants.vcf"},
		output: map[string]string{"stats": "stats.txt"}, stdout: "stats.txt",
		pipe: [][]string{{"bcftools", "stats", "/work/in/variants.vcf"}}},
	{tool: "bedtools.intersect", image: "bedtools", inputs: map[string]string{"a": "data:genes.bed",
		"b": "bcftools.call:variants.vcf.gz"},
		at:     map[string]string{"data:genes.bed": "a", "bcftools.call:variants.vcf.gz": "b"},
		params: []string{"report=pairs"}, output: map[string]string{"regions": "regions.bed"}, stdout: "regions.bed",
		pipe: [][]string{{"bedtools", "intersect", "-a", "/work/in/a", "-b", "/work/in/b", "-wa", "-wb"}}},
	{tool: "bedtools.coverage", image: "bedtools", inputs: map[string]string{"regions": "data:genes.bed", "bam": "data:aln.bam"},
		at:     map[string]string{"data:genes.bed": "regions.bed", "data:aln.bam": "input.bam"},
		output: map[string]string{"coverage": "coverage.tsv"}, stdout: "coverage.tsv",
		pipe: [][]string{{"bedtools", "coverage", "-a", "/work/in/regions.bed", "-b", "/work/in/input.bam"}}},
	{tool: "blast.makedb", image: "blast", inputs: map[string]string{"sequences": "data:MT-human.fa"},
		at: map[string]string{"data:MT-human.fa": "sequences.fa"}, output: map[string]string{"database": "database"},
		dated: "makeblastdb writes the time into the index (.nin) and the description (.njs)",
		pipe: [][]string{{"makeblastdb", "-in", "/work/in/sequences.fa", "-dbtype", "nucl", "-title", "sequences", "-out",
			"/work/out/database/sequences"}}},
	{tool: "blast.search", image: "blast", inputs: map[string]string{"query": "data:MT-human.fa",
		"database": "blast.makedb:database"},
		at:     map[string]string{"data:MT-human.fa": "query.fa", "blast.makedb:database": "database"},
		params: []string{"task=blastn"}, output: map[string]string{"hits": "hits.tsv"},
		pipe: [][]string{{"blastn", "-task", "blastn", "-query", "/work/in/query.fa", "-db",
			"/work/in/database/sequences", "-evalue", "0.001",
			"-max_target_seqs", "500", "-num_threads", "4", "-outfmt", "6 std qlen slen", "-out", "/work/out/hits.tsv"}}},
	// Apptainer starts a program by its whole path, and the reports have the words that fastp was called with.
	{tool: "fastp.trim", image: "fastp", inputs: map[string]string{"reads": "data:reads.fastq.gz"},
		at:     map[string]string{"data:reads.fastq.gz": "reads.fastq.gz"},
		output: map[string]string{"trimmed": "trimmed.fastq.gz", "report": "fastp.json", "page": "fastp.html"},
		dated:  "the page has the time of its making",
		pipe: [][]string{{"/usr/bin/fastp", "--in1", "/work/in/reads.fastq.gz", "--out1", "/work/out/trimmed.fastq.gz",
			"--json", "/work/out/fastp.json",
			"--html", "/work/out/fastp.html", "--length_required", "15", "--qualified_quality_phred", "15", "--thread", "3"}}},
	{tool: "fastp.pairs", image: "fastp", inputs: map[string]string{"reads": "data:reads.fastq.gz", "mates": "data:reads.fastq.gz"},
		at: map[string]string{"data:reads.fastq.gz": "reads_1.fastq.gz,reads_2.fastq.gz"},
		output: map[string]string{"trimmed": "trimmed_1.fastq.gz", "trimmed_mates": "trimmed_2.fastq.gz", "report": "fastp.json",
			"page": "fastp.html"},
		dated: "the page has the time of its making",
		pipe: [][]string{{"/usr/bin/fastp", "--in1", "/work/in/reads_1.fastq.gz", "--in2", "/work/in/reads_2.fastq.gz", "--out1",
			"/work/out/trimmed_1.fastq.gz", "--out2", "/work/out/trimmed_2.fastq.gz", "--json", "/work/out/fastp.json", "--html",
			"/work/out/fastp.html", "--length_required", "15", "--qualified_quality_phred", "15",
			"--detect_adapter_for_pe", "--thread", "3"}}},
	{tool: "fastqc.report", image: "fastqc", inputs: map[string]string{"reads": "data:reads.fastq.gz,data:reads-small.fastq.gz"},
		at: map[string]string{"data:reads.fastq.gz": "reads/reads.fastq.gz",
			"data:reads-small.fastq.gz": "reads/reads-small.fastq.gz"},
		output: map[string]string{"report": "report"},
		dated:  "the pages have the date, and the archives the time of each of their files",
		pipe: [][]string{{"fastqc", "--outdir", "/work/out/report", "--dir", "/tmp", "--threads", "2", "--quiet",
			"/work/in/reads/reads.fastq.gz",
			"/work/in/reads/reads-small.fastq.gz"}}},
	{tool: "multiqc.report", image: "multiqc", inputs: map[string]string{"directories": "fastqc.report:report",
		"files": "samtools.stats:stats.txt"},
		at:     map[string]string{"fastqc.report:report": "directories/0001", "samtools.stats:stats.txt": "files/0001-stats.txt"},
		output: map[string]string{"page": "multiqc.html", "data": "multiqc_data"}, left: "multiqc.log",
		dated: "the page and multiqc_data.json have the time of their making",
		pipe: [][]string{{"multiqc", "--force", "--outdir", "/work/out", "--filename", "multiqc.html", "--no-ansi", "--cl-config",
			"no_version_check: true",
			"/work/in"}}},
	{tool: "r.pca", image: "r", inputs: map[string]string{"counts": "data:counts.tsv"},
		at:     map[string]string{"data:counts.tsv": "counts.tsv"},
		params: []string{"top=30"}, output: map[string]string{"coordinates": "coordinates.tsv", "plot": "plot.png"},
		pipe: [][]string{{"Rscript", "--vanilla", "/opt/tool/pca.R", "/work/in/counts.tsv", "30",
			"/work/out/coordinates.tsv", "/work/out/plot.png"}}},
}

// times matches the forms in which these programs write the time.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\d(T| +|, )\d\d:\d\d(:\d\d)?( UTC)?` + // fastp, MultiQC, description of a BLAST database
	`|\w{3} \d\d?, \d{4} +\d?\d:\d\d [AP]M` + // index of a BLAST database
	`|(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d? \w{3} \d{4}`) // FastQC

// undated removes the times from a file's content; of an archive, from its files.
func undated(content []byte) ([]byte, error) {
	if !bytes.HasPrefix(content, []byte("PK\x03\x04")) {
		return times.ReplaceAll(content, []byte("TIME")), nil
	}
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%s\n%s\n", f.Name, times.ReplaceAll(b, []byte("TIME")))
	}
	return out.Bytes(), nil
}
