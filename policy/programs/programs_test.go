package programs

import "testing"

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
	if Base("/usr/bin/samtools") != "samtools" || Base("samtools") != "samtools" || Base("a/") != "" {
		t.Error("Base")
	}
}
