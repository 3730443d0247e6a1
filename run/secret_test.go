package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/run"
	"slurmgate/secrets"
	"slurmgate/secrets/corpus"
)

// The run's detail, its warnings, events and answers quote what a job prints on standard error. No secret in it reaches
// the ledger, nor half of one at the edge of the quotation.
func TestNoSecretOfAJobInTheLedger(t *testing.T) {
	planted := corpus.Planted(11)
	for i, at := range []int{0, 1, 2, 3, 5, 8} { // how much of the secret is before the edge, in about sixths
		for k := i; k < len(planted); k += 23 {
			p := planted[k]
			if strings.Contains(secrets.Default().Redact("x\n"+p.Text+"\n"), p.Core) {
				continue // TestPlanted counts them
			}
			cut := len(p.Text) * at / 8
			bubble(t, func(t *testing.T, w *world) {
				v := ended(t, w, nil, func(j *job, a *attempt) {
					after := strings.Repeat(".", max(0, 400-len(p.Text)+cut))
					line := "error: " + strings.Repeat("-", max(0, 190-cut)) + " " + p.Text
					a.ctl["stderr"] = []byte("first\n" + line + "\n" + p.Text + "\n" + after)
					w.exitFile(j, 3, "tool_failed")
					w.end(j, "FAILED", 3)
				})
				w.want(v, run.Failed, "tool_failed")
				for _, name := range []string{"ledger.db", "ledger.db-wal"} {
					kept, err := os.ReadFile(filepath.Join(w.dir, name))
					if err != nil && !os.IsNotExist(err) {
						t.Fatal(err)
					}
					for _, half := range halves(p.Core) {
						if strings.Contains(string(kept), half) {
							t.Errorf("%s: %s has %q; the detail is %q", p.Kind, name, half, v.Run.Detail)
						}
					}
				}
			})
		}
	}
}

// halves returns pieces of a secret that must not be seen: its beginning, its middle and its end.
func halves(core string) []string {
	n := max(8, len(core)/3)
	if len(core) <= n {
		return []string{core}
	}
	return []string{core[:n], core[len(core)/2-n/2 : len(core)/2-n/2+n], core[len(core)-n:]}
}

// The end of a log is searched before it is cut, when it is read by bytes and when it is stored.
func TestLogIsCutOutsideSecrets(t *testing.T) {
	secret := corpus.Planted(5)[0].Core
	bubble(t, func(t *testing.T, w *world) {
		v := ended(t, w, nil, func(j *job, a *attempt) {
			a.ctl["stderr"] = []byte(strings.Repeat("first\n", 100) + "key " + secret + " " + strings.Repeat(".", 4096-len(secret)/2))
			w.exitFile(j, 3, "tool_failed")
			w.end(j, "FAILED", 3)
		})
		if kept := w.outputs(v.Run.ID)["stderr"]; strings.Contains(kept, secret[len(secret)-8:]) || len(kept) < 4000 {
			t.Errorf("%d bytes: %.60q", len(kept), kept)
		}
		for _, limit := range []int64{4096 - 8, 4090, 4096} {
			a, err := w.life().engine.Logs(t.Context(), v.Run.ID, "stderr", run.LogPart{Limit: limit})
			if err != nil || strings.Contains(a.Text, secret[len(secret)-6:]) {
				t.Errorf("%.60q %v", a.Text, err)
			}
		}
	})
}
