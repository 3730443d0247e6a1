package slurm

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"slurmgate/run"
)

// recorded reads a file of recorded sbatch output; its first line shows the format.
type record struct {
	argv, code     string
	outcome        run.SendOutcome
	exit           int
	stdout, stderr string
}

func recorded(t *testing.T, file string) (records []record, render func([]record) string) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	head, body, _ := strings.Cut(string(data), "\n")
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		if line[0] == '$' {
			records = append(records, record{argv: line[2:]})
			continue
		}
		r := &records[len(records)-1]
		switch line[0] {
		case '=':
			f := strings.Fields(line[2:])
			r.exit, err = strconv.Atoi(f[0])
			if err != nil || len(f) != 3 {
				t.Fatalf("%s has the line %q, want an exit status, a code and an outcome", file, line)
			}
			r.code, r.outcome = f[1], run.SendOutcome(f[2])
		case '1':
			r.stdout += line[2:] + "\n"
		case '2':
			r.stderr += line[2:] + "\n"
		default:
			t.Fatalf("%s has the line %q, want one that begins with $, =, 1 or 2", file, line)
		}
	}
	return records, func(records []record) string {
		var b strings.Builder
		fmt.Fprintln(&b, head)
		for _, r := range records {
			fmt.Fprintf(&b, "\n$ %s\n= %d %s %s\n", r.argv, r.exit, orDash(r.code), r.outcome)
			for l := range strings.Lines(r.stdout) {
				b.WriteString("1 " + l)
			}
			for l := range strings.Lines(r.stderr) {
				b.WriteString("2 " + l)
			}
		}
		return b.String()
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// All recorded texts of a real sbatch, with what they prove.
func TestClassifyRecorded(t *testing.T) {
	const file = "testdata/sbatch-24.11.txt"
	records, render := recorded(t, file)
	tested := map[string]bool{}
	for i, r := range records {
		res := Classify(r.stdout, r.stderr, &r.exit)
		if *update {
			records[i].code, records[i].outcome = orDash(res.Code), res.Outcome
			continue
		}
		if orDash(res.Code) != r.code || res.Outcome != r.outcome {
			t.Errorf("%s: %s %s, want %s %s\n%s", r.argv, res.Code, res.Outcome, r.code, r.outcome, r.stderr)
		}
		// Without the exit status, which a dead gateway did not see, the files prove the same.
		if blind := Classify(r.stdout, r.stderr, nil); blind.Outcome != res.Outcome || blind.Code != res.Code {
			t.Errorf("%s: without the exit status %s %s", r.argv, blind.Code, blind.Outcome)
		}
		// A part of the text must not prove another outcome, only less.
		for cut := range len(r.stderr) {
			if half := Classify("", r.stderr[:cut], nil); half.Outcome != run.SendDoubt && half.Outcome != res.Outcome {
				t.Errorf("%s: %d bytes of its error prove %s", r.argv, cut, half.Outcome)
			}
		}
		for _, row := range Errors() {
			if row.fits(errorMessages(r.stderr)) {
				tested[fmt.Sprint(row.Text, row.Own)] = true
			}
		}
	}
	if *update {
		must(t, os.WriteFile(file, []byte(render(records)), 0o644))
		return
	}
	for _, row := range Errors() {
		if row.Tested != tested[fmt.Sprint(row.Text, row.Own)] {
			t.Errorf("%s says Tested=%v; recorded: %v", row.Code, row.Tested, !row.Tested)
		}
	}
}

func TestClassify(t *testing.T) {
	zero, one := 0, 1
	const bad = "sbatch: error: Batch job submission failed: "
	for name, c := range map[string]struct {
		stdout, stderr string
		exit           *int
		outcome        run.SendOutcome
		job, cluster   string
		code           string
	}{
		"receipt":      {"1234\n", "", &zero, run.SendAccepted, "1234", "", ""},
		"with cluster": {"1234;emmy\n", "", &zero, run.SendAccepted, "1234", "emmy", ""},
		"among banners": {"*** Maintenance on 1 May ***\n1234;emmy\nSee https://wiki\n", "sbatch: lua: charged 3 hours\n", &zero,
			run.SendAccepted, "1234", "emmy", ""},
		"exit status lost":            {"1234\n", "", nil, run.SendAccepted, "1234", "", ""},
		"receipt, then failure":       {"1234\n", bad + "Invalid qos specification\n", &one, run.SendAccepted, "1234", "", ""},
		"half a line":                 {"12", "", nil, run.SendDoubt, "", "", ""},
		"two receipts":                {"1234\n1235\n", "", &zero, run.SendDoubt, "", "", "several_receipts"},
		"not a receipt":               {"Submitted batch job 12\n 12\n12 \n12;a b\n12;\n-1\n", "", &zero, run.SendDoubt, "", "", "no_receipt"},
		"nothing":                     {"", "", nil, run.SendDoubt, "", "", ""},
		"exit 0 in spite of an error": {"", bad + "Invalid qos specification\n", &zero, run.SendDoubt, "", "", "no_receipt"},
		"timeout":                     {"", bad + "Socket timed out on send/recv operation\n", &one, run.SendDoubt, "", "", ""},
		"send failure":                {"", bad + "Unable to contact slurm controller (send failure)\n", &one, run.SendDoubt, "", "", ""},
		"receive failure":             {"", bad + "Unable to contact slurm controller (receive failure)\n", &one, run.SendDoubt, "", "", ""},
		"a plugin's refusal": {"", "sbatch: error: Project alice-2 has used its hours for this month\n" + bad + "Unspecified error\n", &one,
			run.SendDoubt, "", "", run.RefusedInWords},
		"a plugin's refusal after a failed try": {"", "sbatch: error: Unable to contact slurm controller (connect failure), retrying\n" + bad +
			"No jobs today\n", nil, run.SendDoubt, "", "", run.RefusedInWords},
		"a failed call after the answer": {"", bad + "Unspecified error\nsbatch: error: slurm_receive_msg: Zero Bytes were transmitted or " +
			"received\n", &one, run.SendDoubt, "", "", ""},
		"a failed call in the answer": {"", bad + "Message receive failure\n", &one, run.SendDoubt, "", "", ""},
		"no answer":                   {"", "sbatch: error: Project alice-2 has used its hours\n", &one, run.SendDoubt, "", "", ""},
		"unknown":                     {"", bad + "Something new\n", &one, run.SendDoubt, "", "", run.RefusedInWords},
		"a known text, but not the verdict": {"", "sbatch: error: Invalid qos specification\n" + bad + "Socket timed out on send/recv " +
			"operation\n", &one,
			run.SendDoubt, "", "", ""},
		"a known text said by a site's plugin": {"", "Invalid qos specification\n", &one, run.SendDoubt, "", "", ""},
		"the same by its name":                 {"", "sbatch: error: Invalid qos specification\n", nil, run.SendDoubt, "", "", ""},
		"reply not authentic":                  {"", bad + "Protocol authentication error\n", &one, run.SendDoubt, "", "", ""},
		"limit without its name": {"", bad + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n", &one,
			run.SendRejected, "", "", accountingPolicy},
	} {
		res := Classify(c.stdout, c.stderr, c.exit)
		if res.Outcome != c.outcome || res.JobID != c.job || res.Cluster != c.cluster || res.Code != c.code || res.ExitCode != c.exit {
			t.Errorf("Classify of %s gives %s, want the outcome %s, job %q, cluster %q and code %q",
				name, sendText(res), c.outcome, c.job, c.cluster, c.code)
		}
	}
}

func TestErrorTable(t *testing.T) {
	var texts []string
	for _, r := range Errors() {
		if r.Outcome != run.SendRejected && r.Outcome != run.SendDeferred || r.Code == "" || r.Text == "" || strings.TrimLeft(r.Text,
			" ") != r.Text {
			t.Errorf("the row %q %q has the outcome %s, want a rejection or deferral with code and text", r.Code, r.Text, r.Outcome)
		}
		texts = append(texts, fmt.Sprint(r.Text, r.Own))
	}
	slices.Sort(texts)
	if n := len(slices.Compact(texts)); n != len(Errors()) {
		t.Errorf("%d texts for %d rows", n, len(Errors()))
	}
}

func FuzzClassify(f *testing.F) {
	f.Add("12;c\n", "", 0)
	f.Add("", "sbatch: error: Batch job submission failed: Invalid qos specification\n", 1)
	f.Fuzz(func(t *testing.T, stdout, stderr string, exit int) {
		res := Classify(stdout, stderr, &exit)
		if (res.Outcome == run.SendAccepted) != (res.JobID != "") || len(res.Text) > 5<<10 {
			t.Errorf("sbatch's answer is taken as %s, want a job exactly where it was accepted, and a bounded text", sendText(res))
		}
		if res.Outcome == run.SendAccepted && !strings.Contains("\n"+stdout, "\n"+res.JobID) {
			t.Errorf("sbatch's answer is taken as %s, want an id that it printed", sendText(res))
		}
		if (res.Outcome == run.SendRejected || res.Outcome == run.SendDeferred) && exit == 0 {
			t.Errorf("refused with exit 0: %s", sendText(res))
		}
	})
}

// The numbers of the table match its texts, in every release that has the text.
func TestErrorNumbers(t *testing.T) {
	data, err := os.ReadFile("testdata/errno.txt")
	must(t, err)
	numbers := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if f := strings.SplitN(strings.TrimSpace(line), " ", 3); f[0] != "#" {
			if had, ok := numbers[f[2]]; ok && had != f[1] {
				t.Errorf("%s has the numbers %s and %s", f[2], had, f[1])
			}
			numbers[f[2]] = f[1]
		}
	}
	for _, row := range Errors() {
		if row.Number != 0 && numbers[row.Text] != strconv.Itoa(row.Number) {
			t.Errorf("%s: %d, but the text has the number %s", row.Code, row.Number, numbers[row.Text])
		}
		if row.Number == 0 && !row.Own && row.With == "" {
			t.Errorf("%s has no number", row.Code)
		}
		code, outcome, scope := ClassifyNumber(row.Number, []string{"QOSMaxSubmitJobPerUserLimit"})
		switch {
		case row.Number == 0 && outcome != run.SendDoubt:
			t.Errorf("no number is %s", outcome)
		case row.Code == accountingPolicy && (code != "QOSMaxSubmitJobPerUserLimit" || outcome != run.SendDeferred || scope != run.ScopeQOS):
			t.Errorf("the number of %s gives %s, %s, %s, want the limit's name, %s, %s",
				row.Code, code, outcome, scope, run.SendDeferred, run.ScopeQOS)
		case row.Number != 0 && row.Code != accountingPolicy && (outcome != row.Outcome || scope != row.Scope):
			t.Errorf("the number of %s gives %s, %s, want %s, %s", row.Code, outcome, scope, row.Outcome, row.Scope)
		}
	}
	if code, outcome, scope := ClassifyNumber(2050, nil); code != accountingPolicy || outcome != run.SendDeferred || scope != run.ScopeRun {
		t.Errorf("a limit without its name: %s %s %s", code, outcome, scope)
	}
	for _, number := range []int{-1, 0, 1007, 5004, 5005, 9202, 4711} {
		if _, outcome, _ := ClassifyNumber(number, nil); outcome != run.SendDoubt {
			t.Errorf("the number %d gives %s, want %s", number, outcome, run.SendDoubt)
		}
	}
}
