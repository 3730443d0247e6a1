package packaging_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// INSTALL.md and docs/run/port.md, word for word: every block marked sh runs, in order, as root on a login node whose init is systemd, and
// prints what the block after it shows. The port is opened before the last block of INSTALL.md removes the package. proves CARD-01 OPS-01
func TestInstallDocument(t *testing.T) {
	h := start(t)
	for from, to := range map[string]string{made.new.file(t, "*.deb"): "root", "build/images": "root", "build/data/aln.bam": "data"} {
		h.must("mkdir -p /shared/" + to)
		output(t, "cp", "-r", from, filepath.Join(h.share, to))
	}
	run := func(script string) (string, error) { return h.run("cd /root && set -eu\n" + script) }
	// These commands replace the site: its images and data, its certificate and its name service.
	prepared, err := run(`cp -r /shared/root/. /root && cd /etc/ssl && openssl req -quiet -x509 -newkey rsa:2048 -nodes -days 2 \
		-subj /CN=slurmgate.example.org -addext subjectAltName=DNS:slurmgate.example.org -keyout slurmgate.key -out slurmgate.pem &&
		cat slurmgate.pem >>/etc/ssl/certs/ca-certificates.crt && echo '127.0.0.1 slurmgate.example.org' >>/etc/hosts`)
	if err != nil {
		t.Fatal(err, prepared)
	}
	install, port := blocks(t, "INSTALL.md"), blocks(t, "docs/run/port.md")
	last := len(install) - 1
	began, ran := time.Now(), 0
	for _, b := range slices.Concat(install[:last], port, install[last:]) {
		out, err := run(b.script)
		t.Logf("%s:%d\n%s%s", b.file, b.line, b.script, out)
		if err != nil {
			journal, _ := run("systemctl status --no-pager --lines=40 slurmgate; true")
			t.Fatalf("%s:%d: %v\n%s%s\n%s", b.file, b.line, err, b.script, out, journal)
		}
		rest := masked(out + "\n")
		for _, want := range b.shown {
			_, after, ok := strings.Cut("\n"+rest, "\n"+masked(want))
			if !ok {
				t.Errorf("%s:%d: the line %q is not printed in its place:\n%s", b.file, b.line, want, out)
				break
			}
			rest = after
		}
		ran += strings.Count(b.script, "\n")
	}
	t.Logf("%d lines ran in %s", ran, time.Since(began).Round(time.Second))
	if ran < 20 {
		t.Errorf("only %d lines ran", ran)
	}
	if left, err := run(`test -s /var/lib/slurmgate/ledger.db &&
		test -s /etc/slurmgate/site.yaml && ! systemctl is-active slurmgate`); err != nil {
		t.Errorf("after the removal: %v %s", err, left)
	}
}

// block is a script of a document and the lines that it prints, without those left out.
type block struct {
	file   string
	line   int
	script string
	shown  []string
}

func blocks(t *testing.T, file string) (list []block) {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(made.repo, file))
	if err != nil {
		t.Fatal(err)
	}
	fence, lines := "", strings.Split(string(bytes.TrimSpace(document)), "\n")
	last := -1 // the line after a script
	for i, line := range lines {
		switch {
		case fence == "" && strings.HasPrefix(line, "```"):
			if fence = line; line == "```sh" {
				list = append(list, block{file: file, line: i + 2})
			} else if line == "```" && last >= 0 && strings.TrimSpace(strings.Join(lines[last:i], "")) == "" {
				fence = "shown"
			}
		case line == "```":
			if fence == "```sh" {
				last = i + 1
			} else {
				last = -1
			}
			fence = ""
		case fence == "```sh":
			list[len(list)-1].script += line + "\n"
		case fence == "shown" && line != "…":
			list[len(list)-1].shown = append(list[len(list)-1].shown, line)
		}
	}
	return list
}

var variable = regexp.MustCompile(`(?:art|run)_[0-9A-Z]+|sgt_\S+|[0-9a-f]{12,}…?|[0-9]+(?:\.[0-9]+)?(?:ms|s)?`)

// masked returns a text without what differs from one installation to the next, and with single spaces between columns.
func masked(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(variable.ReplaceAllString(line, "#")), " "))
	}
	return strings.Join(lines, "\n") + "\n"
}
