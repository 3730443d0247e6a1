package programs

import (
	"strings"
	"testing"
)

func TestTables(t *testing.T) {
	for name, want := range map[string]string{
		"bash": "starts", "bash-5.2": "starts", "ksh93": "starts", "busybox": "starts", "ld-linux-x86-64.so.2": "starts",
		"ld-musl-x86_64.so.1": "starts", "python3.11": "interprets", "perl5.36": "interprets", "Rscript": "interprets",
		"gawk": "codes", "find": "codes", "samtools": "", "minimap2": "", "seqkit": "", "bwa-mem2": "", "": "",
	} {
		got := ""
		switch {
		case Starts(name):
			got = "starts"
		case Codes(name):
			got = "codes"
		case Interprets(name):
			got = "interprets"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]bool{
		"python3.13t": true, "python3.12-dbg": true, "perl5.38-x86_64-linux-gnu": true, "java": true, "java-17": true, "tclsh8.6": true,
		"m4":        true,
		"snakemake": true, "nextflow": true, "tar": true, "sqlite3": true, "gnuplot-5": true, "jupyter": true, "ipython3": true, "bash": true,
		"find": true, "julia-1.10": true, "Rscript": true, "python.exe": true, "octave-cli-8.4": true,
		"samtools": false, "bcftools": false, "minimap2": false, "bwa-mem2": false, "seqkit": false, "STAR": false, "fastqc": false,
		"R2dtool": false,
		"7z":      false, "": false,
	} {
		if RunsFiles(name) != want {
			t.Errorf("RunsFiles(%s) is not %v", name, want)
		}
	}
	for _, name := range strings.Fields(`LD_PRELOAD BASH_ENV ENV PYTHONPATH PERL5OPT R_PROFILE_USER JAVA_TOOL_OPTIONS GIT_SSH
		PATH HOME NODE_OPTIONS RUBYOPT LUA_INIT TCLLIBPATH AWKPATH MPLBACKEND BCFTOOLS_PLUGINS TAR_OPTIONS`) {
		if !FindsCode(name) {
			t.Errorf("%s does not count as a variable that decides which code is loaded", name)
		}
	}
	if ChangesCode("MPLBACKEND") {
		t.Error("a policy of before this rule may set MPLBACKEND for all")
	}
	for _, name := range strings.Fields("APPTAINER_BIND SINGULARITYENV_X SLURM_CONF SBATCH_WRAP TMPDIR") {
		if !Reserved(name) {
			t.Errorf("%s is not reserved", name)
		}
	}
	for _, name := range strings.Fields("LC_ALL LANG TZ OMP_NUM_THREADS") {
		if FindsCode(name) || Reserved(name) {
			t.Errorf("%s is harmless", name)
		}
	}
	if Base("/usr/bin/samtools") != "samtools" || Base("samtools") != "samtools" || Base("a/") != "" {
		t.Error("Base")
	}
}
