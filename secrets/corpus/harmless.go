package corpus

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

func (r source) uuid() string {
	h := sum(r, 16)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Harmless are at least n texts without a secret, made from a seed: names, checksums, sequences, lines of the files and logs of
// laboratories.
func Harmless(seed uint64, n int) (out []Text) {
	r := source{rand.New(rand.NewPCG(seed, 2))}
	const protein, dna = "ACDEFGHIKLMNPQRSTVWY", "ACGT"
	number := func(n int) string { return r.of("123456789", 1) + r.of(digits, n-1) }
	read := func() string { return r.of(dna+"N", 75+r.IntN(176)) }
	phred := func(top int) string {
		b := make([]byte, 75+r.IntN(176))
		for i := range b {
			b[i] = byte('!' + r.IntN(top))
		}
		return string(b)
	}
	header := func() string {
		return fmt.Sprintf("@A%s:%d:H%sX:%d:%d:%d:%d 1:N:0:%s", r.of(digits, 5), r.IntN(9999), r.of(up36, 5), 1+r.IntN(4), 1101+r.IntN(600),
			r.IntN(40000), r.IntN(40000), r.of(dna, 8))
	}
	sample := func() string {
		return fmt.Sprintf("%s_%s_%d", r.one("tumor", "normal", "HG002", "PatientA", "ctrl"), r.one("rep1", "L001", "S12", "R2"), r.IntN(900))
	}
	id := func() string { return r.one("run_", "art_", "proj_", "tok_", "apr_") + r.of(crockford, 26) }
	var tree func(depth int) string
	tree = func(depth int) string {
		if depth == 0 {
			return fmt.Sprintf("%s:%.5f", sample(), r.Float64())
		}
		return fmt.Sprintf("(%s,%s)%d:%.4f", tree(depth-1), tree(r.IntN(depth)), r.IntN(100), r.Float64())
	}
	smiles := func() string {
		var b strings.Builder
		for range 6 + r.IntN(14) {
			b.WriteString(r.one("C", "CC", "c1ccccc1", "N", "O", "(=O)", "(C)", "[C@@H]", "[C@H](O)", "n2cc3", "Cl", "Br", "S(=O)(=O)", "/C=C/",
				"[NH3+]", "#N", "F", "[O-]"))
		}
		return b.String()
	}
	stamp := func() time.Time { return time.Unix(1_700_000_000+r.Int64N(100_000_000), r.Int64N(1e9)).UTC() }
	kinds := []struct {
		kind string
		make func() string
	}{
		{"md5", func() string { return sum(r, 16) }}, {"sha1", func() string { return sum(r, 20) }},
		{"sha256", func() string { return sum(r, 32) }},
		{"SHA256 in capitals", func() string { return strings.ToUpper(sum(r, 32)) }}, {"sha512", func() string { return sum(r, 64) }},
		{"crc", func() string { return sum(r, 4) }}, {"md5sum line", func() string { return sum(r, 16) + "  " + sample() + ".fastq.gz" }},
		{"sha256sum line", func() string { return sum(r, 32) + " *data/" + sample() + ".bam" }},
		{"md5 in base64", func() string { return base64.StdEncoding.EncodeToString(r.bytes(16)) }},
		{"sha1 in base64", func() string { return base64.StdEncoding.EncodeToString(r.bytes(20)) }},
		{"sha224 in base64", func() string { return base64.StdEncoding.EncodeToString(r.bytes(28)) }},
		{"sha256 in base64", func() string { return base64.StdEncoding.EncodeToString(r.bytes(32)) }},
		{"sha384 integrity", func() string { return "sha384-" + base64.StdEncoding.EncodeToString(r.bytes(48)) }},
		{"sha512 integrity", func() string { return "sha512-" + base64.StdEncoding.EncodeToString(r.bytes(64)) }},
		{"go.sum", func() string {
			return "example.org/x/y v1." + number(2) + ".0 h1:" + base64.StdEncoding.EncodeToString(r.bytes(32))
		}},
		{"sha512t24u", func() string { return "ga4gh:SQ." + base64.URLEncoding.EncodeToString(r.bytes(24)) }},
		{"seguid", func() string { return base64.RawStdEncoding.EncodeToString(r.bytes(20)) }},
		{"etag", func() string { return `ETag: "` + sum(r, 16) + "-" + number(2) + `"` }},
		{"UUID", r.uuid}, {"urn", func() string { return "urn:uuid:" + r.uuid() }}, {"our id", id},
		{"job name", func() string { return "sg-" + r.of(low36, 26) + "-1-" + sum(r, 4) }},
		{"git commit", func() string { return "commit " + sum(r, 20) }},
		{"git describe", func() string { return "v1." + number(2) + "-" + number(2) + "-g" + sum(r, 4)[:7] }},
		{"digest", func() string { return "sha256:" + sum(r, 32) }}, {"SIF", func() string { return "/images/sha256/" + sum(r, 32) + ".sif" }},
		{"image by digest", func() string { return "docker://quay.io/biocontainers/samtools:1.17--h00cdaf9_0@sha256:" + sum(r, 32) }},
		{"image by tag and digest", func() string { return "docker://ubuntu:22.04@sha256:" + sum(r, 32) }},
		{"conda", func() string { return "samtools-1." + number(2) + "-h" + sum(r, 4)[:7] + "_" + number(1) }},
		{"conda file", func() string { return "py39h" + sum(r, 4)[:7] + "_0.tar.bz2" }},
		{"path with a hash", func() string { return "/scratch/work/" + sum(r, 1) + "/" + sum(r, 15) + "/" + sample() + ".sorted.bam" }},
		{"nextflow", func() string {
			return "[" + sum(r, 1) + "/" + sum(r, 3) + "] process > ALIGN (" + sample() + ") [100%] 1 of 1, cached: 1 ✔"
		}},
		{"file name", func() string { return sample() + "_" + sum(r, 6) + ".vcf.gz.tbi" }},
		{"read", read}, {"FASTQ header", header}, {"quality", func() string { return phred(42) }}, {"quality of long reads",
			func() string { return phred(94) }},
		{"FASTQ", func() string {
			s := read()
			return header() + "\n" + s + "\n+\n" + (phred(42) + phred(42) + phred(42))[:min(len(s), 225)]
		}},
		{"old FASTQ header", func() string {
			return fmt.Sprintf("@HWUSI-EAS100R:6:%d:%d:%d#0/1", r.IntN(99), r.IntN(9999), r.IntN(9999))
		}},
		{"SRA header", func() string { return "@SRR" + number(7) + "." + number(3) + " " + number(3) + " length=" + number(3) }},
		{"Nanopore header", func() string {
			return "@" + r.uuid() + " runid=" + sum(r, 20) + " read=" + number(4) + " ch=" + number(3) + " start_time=" + stamp().
				Format(time.RFC3339)
		}},
		{"PacBio header", func() string { return fmt.Sprintf("@m64011_%s/%d/ccs", stamp().Format("060102_150405"), r.IntN(1e8)) }},
		{"FASTA", func() string { return ">sp|P" + r.of(up36, 5) + "|KEY_HUMAN Access protein key\n" + r.of(protein, 60) }},
		{"protein", func() string { return "M" + r.of(protein, 40+r.IntN(400)) }},
		{"peptide", func() string { return r.one("AKIA", "ASIA", "ACCA", "LTAI", "EAAA", "") + r.of(protein, 16) }},
		{"DNA", func() string { return r.of(dna, 40+r.IntN(400)) }}, {"DNA in small letters",
			func() string { return r.of("acgtn", 60) + r.of(dna, 60) }},
		{"RNA structure", func() string { return r.of("().", 80) }}, {"IUPAC", func() string { return r.of("ACGTRYSWKMBDHVN", 90) }},
		{"accession", func() string { return r.one("SRR", "ERR", "DRR", "PRJNA", "SAMN", "GSE", "GSM", "EGAF") + number(7) }},
		{"accession in a line", func() string { return "accession: " + r.one("GSM", "SRR") + number(7) + "_" + sample() }},
		{"accession in JSON", func() string {
			return `{"accession":"GCF_` + r.of(digits, 9) + "." + number(1) + `","key":"` + sample() + `"}`
		}},
		{"Ensembl", func() string { return r.one("ENSG", "ENST", "ENSMUSG", "ENSP") + r.of(digits, 11) + "." + number(1) }},
		{"RefSeq", func() string { return r.one("NM_", "NP_", "XM_", "NC_", "GCF_") + r.of(digits, 9) + "." + number(1) }},
		{"dbSNP", func() string { return "rs" + number(9) }}, {"UniProt", func() string { return "A0A" + r.of(up36, 6) + number(1) }},
		{"PDB", func() string { return number(1) + r.of(up36, 3) + "_A" }},
		{"DOI", func() string {
			return "https://doi.org/10." + number(4) + "/s" + number(5) + "-026-" + r.of(digits, 5) + "-" + r.of(low36, 1)
		}}, {"ORCID", func() string { return "0000-0002-" + r.of(digits, 4) + "-" + r.of(digits, 3) + "X" }},
		{"JSON in base64", func() string {
			return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"id":%d,"name":"%s","sum":"%s"}`, r.IntN(1e6), sample(), sum(r, 4)))
		}},
		{"JSON of ids in base64", func() string { return base64.RawURLEncoding.EncodeToString([]byte(`{"run_id":"` + id() + `","n":1}`)) }},
		{"CamelCase", func() string {
			return "HomoSapiensChromosome" + number(2) + "RefSeqAnnotationTableVersion" + number(2) + r.one("Filtered", "Sorted")
		}},
		{"node list", func() string {
			return fmt.Sprintf("node[%03d-%03d,%03d],gpu-a100-%d", r.IntN(400), r.IntN(400)+400, r.IntN(999), r.IntN(9))
		}},
		{"squeue", func() string {
			return fmt.Sprintf("%s|sg-%s-1|RUNNING|None|%s|node%03d|cluster1", number(7), r.of(low36, 26), stamp().Format("2006-01-02T15:04:05"),
				r.IntN(900))
		}},
		{"sacct", func() string {
			return number(7) + ".batch|COMPLETED|0:0|01:02:03|" + number(6) + "K|cpu=4,mem=8G,node=1,billing=4"
		}},
		{"SAM", func() string {
			return header()[1:30] + "\t99\tchr7\t" + number(8) + "\t60\t151M\t=\t" + number(8) + "\t312\t" + read() + "\t" + phred(
				42) + "\tNM:i:0\tMD:Z:151\tRG:Z:" + sample() + "\tCB:Z:" + r.of(dna, 16) + "-1\tSA:Z:chr1,1,+,3S4M,60,1;"
		}},
		{"SAM header", func() string {
			return "@SQ\tSN:chr1\tLN:248956422\tM5:" + sum(r, 16) + "\tUR:file:/ref/hg38.fa\n@RG\tID:" + sample() + "\tPL:ILLUMINA"
		}},
		{"VCF", func() string {
			return "chr7\t" + number(8) + "\trs" + number(8) + "\tA\tT\t" + number(3) + "\tPASS\tAC=2;AF=0.5;AN=4;DP=" + number(
				3) + ";MQ=60.00;ANN=T|missense|MODERATE|KEY1|ENSG" + r.of(digits, 11) + "\tGT:AD:DP:GQ:PL\t0/1:12,14:26:99:404,0,336"
		}},
		{"GFF", func() string {
			return "chr1\thavana\tgene\t1\t99\t.\t+\t.\tID=gene:ENSG" + r.of(digits, 11) + ";Name=TOKEN1;biotype=protein_coding;key=" + sample()
		}},
		{"BED", func() string { return "chr1\t" + number(6) + "\t" + number(7) + "\tpeak_" + number(4) + "\t960\t+" }},
		{"CIGAR", func() string { return number(2) + "S" + number(3) + "M1I" + number(2) + "M2D" + number(2) + "M" }},
		{"time", func() string { return stamp().Format(time.RFC3339Nano) }}, {"log time", func() string {
			return "[" + stamp().Format("2006-01-02 15:04:05.000") + "] INFO  org.x.Key: access time 12ms"
		}},
		{"version", func() string { return "v" + number(1) + "." + number(2) + ".0-rc." + number(1) + "+build." + sum(r, 4) }},
		{"InChIKey", func() string { return r.of(uppers, 14) + "-" + r.of(uppers, 10) + "-N" }}, {"InChI", func() string {
			return "InChI=1S/C13H18O2/c1-9(2)8-11-4-6-12(7-5-11)10(3)13(14)15/h4-7,9-10H,8H2,1-3H3,(H,14,15)"
		}},
		{"SMILES", smiles}, {"Newick", func() string { return tree(5) + ";" }},
		{"barcode", func() string { return r.of(dna, 8) + "+" + r.of(dna, 8) }},
		{"position", func() string { return "chr" + number(1) + ":" + number(8) + "-" + number(8) }}, {"HGVS", func() string {
			return "NM_" + r.of(digits, 6) + ".3:c." + number(4) + "G>A (p.Arg" + number(3) + "Ter)"
		}},
		{"URL", func() string {
			return "https://ftp.ebi.ac.uk/vol1/fastq/SRR" + number(3) + "/SRR" + number(7) + "/SRR" + number(7) + "_1.fastq.gz"
		}}, {"URL with a user", func() string { return "ssh://git@git.example.org:2222/lab/" + sample() + ".git" }},
		{"S3", func() string { return "s3://bucket-" + number(4) + "/key/" + sum(r, 16) + "/" + sample() + ".cram" }},
		{"URL with a port", func() string { return "http://host:8080/a@b/" + sample() + "?page=2&key=" + sample() }},
		{"tokens", func() string {
			return "max_tokens: " + number(4) + ", prompt tokens: " + number(5) + ", token_type: bearer"
		}}, {"matrix", func() string { return number(2) + "\t0." + number(5) + "\t-1." + number(4) + "e-" + number(2) + "\tNA" }},
		{"cache key", func() string { return "cache key: " + sum(r, 32) }},
		{"public key", func() string { return "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + r.of(std64, 43) + " me@lab" }},
		{"primary key", func() string { return "primary key=" + sample() + " foreign_key: gene_" + number(5) }},
		{"command", func() string {
			return "samtools sort -@ 4 -m 2G -o /work/out/" + sample() + ".bam -u - -p 3 --access-mode r"
		}}, {"R", func() string { return "by.x=\"gene_id\", by.y=\"ENTREZ" + number(5) + "\", auth=NULL" }},
		{"e-mail", func() string { return "mail: jane.doe" + number(2) + "@lab.example.org, key contact" }},
		{"PASS of a test", func() string { return "PASS: test_" + sample() + "\nPASS\tBasic Statistics\t" + sample() + ".fq" }},
		{"pwd", func() string { return "PWD=/home/lab/" + sum(r, 16) + "\nOLDPWD=/tmp/" + sample() }},
		{"claim", func() string { return "slurmgate-claim 1 job=1234 task=- restart=0 token=" + sum(r, 16) + " node=n1" }},
		{"script", func() string { return "attempt=/runs/x\nctl=$attempt/ctl\ntoken=" + sum(r, 16) + "\nlimit=60" }},
		{"unknown token", func() string { return "syntax error: unexpected token '}' at line " + number(3) + ", token: IDENT" }},
	}
	for len(out) < n {
		for _, k := range kinds {
			out = append(out, Text{k.kind, k.make()})
		}
	}
	return out
}
