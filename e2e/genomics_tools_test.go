//go:build tools

package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// compared lists the tools of TestToolsAgainstDirect.
var compared = []string{"samtools.flagstat", "seqkit.stats", "minimap2.map"}

// Each tool of the genomics domain gives on the cluster what the same programs give when they are called directly, byte
// for byte; where a file has the time in it, without the time. No tool of the domain is left out.
//
// It runs with `make tools`, not with `make test`. It proves DATA-01, DATA-02, DATA-03 and DATA-04 on the tools that
// ship.
func TestEveryToolAgainstDirect(t *testing.T) {
	var manifest struct {
		Tools []struct {
			ID string `yaml:"tool_id"`
		}
	}
	text := value(os.ReadFile(filepath.Join(world.repo, "domains/genomics/manifest.yaml")))(t)
	must(t, yaml.Unmarshal(text, &manifest))
	for _, tool := range manifest.Tools {
		if !slices.Contains(compared, tool.ID) && !slices.ContainsFunc(genomicsBenches, func(b bench) bool { return b.tool == tool.ID }) {
			t.Errorf("%s is compared with nothing", tool.ID)
		}
	}
	againstDirect(t, genomicsSite(t), func(bench) bool { return true })
}

// genomicsSite makes a site whose domain has all its images.
func genomicsSite(t *testing.T) *site {
	s := newSite(t, "genomics")
	must(t, command("scripts/images/build", "--all"))
	found := value(filepath.Glob(filepath.Join(world.repo, "build/images/*.sif")))(t)
	for _, sif := range found {
		name := strings.TrimSuffix(filepath.Base(sif), ".sif")
		if name == "samtools" || name == "seqkit" || name == "minimap2" {
			continue // every site of this domain has them
		}
		to := s.dir + "/files/" + name + ".sif"
		must(t, command("cp", sif, host(to)))
		s.ok(nil, "image", "add", name, to)
	}
	return s
}

// What a lab does by hand: reads of a patient are trimmed, aligned and called, each step by the artifacts of the one before. The reports
// and the files that are saved have the patient's name.
func TestReadsToVariants(t *testing.T) {
	s := genomicsSite(t)
	s.serve()
	for from, to := range map[string]string{"reads.fastq.gz": "patient7.fastq.gz", "MT-human.fa": "MT.fa"} {
		must(t, command("cp", host(data(from)), host(s.dir)+"/files/"+to))
	}
	must(t, giveToLab(host(s.dir)+"/files"))
	ref, reads := s.dir+"/files/MT.fa", s.dir+"/files/patient7.fastq.gz"
	step := func(args ...string) map[string]string {
		t.Helper()
		var l looked
		s.ok(&l, append(append([]string{"run"}, args...), "--wait", "--to", s.dir+"/saved/"+args[0])...)
		if l.State != "succeeded" || len(l.Warnings) > 0 {
			t.Fatalf("%v: %v, warnings %q; want it succeeded without any", args, l, l.Warnings)
		}
		return l.Roles
	}
	must(t, os.Mkdir(host(s.dir)+"/saved", 0o755))
	must(t, giveToLab(host(s.dir)+"/saved"))
	step("fastqc.report", "-i", "reads="+reads)
	trimmed := step("fastp.trim", "-i", "reads="+reads)["trimmed"]
	index := step("bwa.index", "-i", "reference="+ref)["index"]
	fai := step("samtools.faidx", "-i", "reference="+ref)["index"]
	bam := step("bwa.mem", "-i", "index="+index, "-i", "reads="+trimmed, "-p", "sample=patient7")["aligned"]
	step("samtools.index", "-i", "bam="+bam)
	step("samtools.flagstat", "-i", "bam="+bam)
	vcf := step("bcftools.call", "-i", "bams="+bam, "-i", "reference="+ref, "-i", "fai="+fai, "-p", "ploidy=1")["variants"]
	for _, name := range []string{"fastqc.report/report/patient7_fastqc.html", "fastp.trim/trimmed.patient7.fastq.gz",
		"fastp.trim/patient7.fastq.gz.fastp.json", "samtools.faidx/MT.fa.fai"} {
		if _, err := os.Stat(host(s.dir) + "/saved/" + name); err != nil {
			t.Errorf("of the saved files %s is missing: %v", name, err)
		}
	}
	page := value(os.ReadFile(host(s.dir) + "/saved/fastqc.report/report/patient7_fastqc.html"))(t)
	calls := shell(t, "lab", `zcat "$1"`, s.dir+"/saved/bcftools.call/variants.vcf.gz")
	if !strings.Contains(string(page), "patient7.fastq.gz") || !strings.Contains(calls, "\tFORMAT\tpatient7\n") ||
		strings.Count(calls, "\nMT_human\t") < 100 {
		t.Errorf("report and variants %s lack the patient's name, or variants: %.3000s", vcf, calls)
	}
}

// Two samples that meet in one tool stay two, or the run fails: MultiQC writes over the first of two reports with one sample name and exits
// 0, which ends the run with MultiQC's own line; reads are aligned only with a sample's name, which a sheet gives, and are called into a
// column each; a table with two columns of one name is refused.
func TestSamplesMeet(t *testing.T) {
	s := genomicsSite(t)
	s.serve()
	for from, to := range map[string]string{"reads.fastq.gz": "P1.fastq.gz", "reads-small.fastq.gz": "P2.fastq.gz", "MT-human.fa": "MT.fa"} {
		must(t, command("cp", host(data(from)), host(s.dir)+"/files/"+to))
	}
	must(t, giveToLab(host(s.dir)+"/files"))
	reads := map[string]string{"P1": s.dir + "/files/P1.fastq.gz", "P2": s.dir + "/files/P2.fastq.gz"}
	made := func(role string, args ...string) string {
		t.Helper()
		var l looked
		s.ok(&l, append(append([]string{"run"}, args...), "--wait")...)
		return l.Roles[role]
	}
	fails := func(reason string, stays []string, why string, args ...string) {
		t.Helper()
		var a submitted
		s.ok(&a, append([]string{"run"}, args...)...)
		l := s.wait(a.RunID)
		s.endedBadly(l, "failed", reason, stays...)
		if !strings.Contains(l.why(), why) {
			t.Errorf("%v failed for %q, want %q", args, l.why(), why)
		}
	}

	one := made("report", "fastp.trim", "-i", "reads="+reads["P1"])
	two := made("report", "fastp.trim", "-i", "reads="+reads["P2"])
	fails("OUTPUT-LINES", []string{"rejected:data", "rejected:page"}, "Overwriting: reads", "multiqc.report", "-i", "files="+one, "-i",
		"files="+two)
	if page := made("page", "multiqc.report", "-i", "files="+one); page == "" {
		t.Error("multiqc.report of one report gave no page")
	}

	ref := s.dir + "/files/MT.fa"
	index := made("index", "bwa.index", "-i", "reference="+ref)
	if f := s.fails(2, "run", "bwa.mem", "-i", "index="+index, "-i", "reads="+reads["P1"]); !strings.Contains(text(t, f), "sample") {
		t.Errorf("bwa.mem without a sample was refused with %v, want a refusal that names the argument sample", f)
	}
	sheet := s.file("sheet.csv", "sample,reads\nP1,"+reads["P1"]+"\nP2,"+reads["P2"]+"\n")
	s.ok(nil, "batch", "run", "bwa.mem", "--sheet", sheet, "--name", "aligned", "-i", "index="+index)
	var rows struct {
		Samples []struct {
			Sample string
			RunID  string `json:"run_id"`
		}
	}
	s.ok(nil, "batch", "wait", "aligned", "--timeout", "5m")
	s.ok(&rows, "batch", "status", "aligned", "--samples")
	fai := made("index", "samtools.faidx", "-i", "reference="+ref)
	call := []string{"bcftools.call", "-i", "reference=" + ref, "-i", "fai=" + fai, "-p", "ploidy=1"}
	for _, r := range rows.Samples {
		call = append(call, "-i", "bams="+s.wait(r.RunID).Roles["aligned"])
	}
	vcf := unpacked(t, s.bytesOf(made("variants", call...)))
	if !strings.Contains(vcf, "\tFORMAT\tP1\tP2\n") {
		t.Errorf("the variants of P1 and P2 begin with %.2000s, want a column for each", vcf)
	}

	counts := s.file("counts.tsv", "gene\tP1\tP1\na\t1\t2\nb\t3\t5\nc\t8\t13\n")
	fails("tool_failed", nil, "no two have the same", "r.pca", "-i", "counts="+counts)
}

// unpacked decompresses a gzip file.
func unpacked(t *testing.T, data []byte) string {
	t.Helper()
	r := value(gzip.NewReader(bytes.NewReader(data)))(t)
	text := value(io.ReadAll(r))(t)
	return string(text)
}

// A tool of the domain gives the same over SSH and SFTP, and over slurmrestd and SFTP, as its program called directly.
func TestGenomicsElsewhere(t *testing.T) {
	domain := func(doc tree) {
		dir := filepath.Join(filepath.Dir(doc["gateway"].(tree)["state_dir"].(string)), "genomics")
		must(t, os.CopyFS(dir, os.DirFS(filepath.Join(host(world.dir), "genomics"))))
		doc["domain_dir"] = dir
	}
	for name, s := range map[string]*site{"sftp": farSite(t, "ssh-sftp.yaml", domain), "slurmrestd": restSite(t, "rest-sftp.yaml", domain)} {
		t.Run(name, func(t *testing.T) {
			s := s.as(t)
			s.ok(nil, "image", "add", "--replace", "samtools", filepath.Join(world.repo, "build/images/samtools.sif"))
			b := genomicsBenches[slices.IndexFunc(genomicsBenches, func(b bench) bool { return b.tool == "samtools.stats" })]
			at := map[string]string{}
			b.direct(t, s, at)
			s.serve()
			bam := value(os.ReadFile(host(data("aln.bam"))))(t)
			var l looked
			s.ok(&l, "run", b.tool, "--input", "bam="+s.file("aln.bam", string(bam)), "--wait")
			if l.State != "succeeded" {
				t.Fatalf("%v, want it succeeded", l)
			}
			want := value(os.ReadFile(host(at[b.tool+":stats.txt"])))(t)
			if got := s.bytesOf(l.Roles["stats"]); len(want) == 0 || string(got) != string(want) {
				t.Errorf("%d bytes on the cluster, %d directly", len(got), len(want))
			}
		})
	}
}
