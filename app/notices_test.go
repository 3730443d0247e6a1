package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/site"
)

// A batch is told of by its name or id to places that the site allows; a receiver by its name, so that no call has its URL.
//
// proves MANY-05
func TestNotifyBatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(file, []byte("https://hooks.example.org/services/T000/B000/XXXXXXXXXXXXXXXXXXXXXXXX"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := gatewayOver(t, t.TempDir(), "testdata/before/domain", "version: 1\n", func(s *site.Site) {
		s.Slurm.DefaultQOS = "normal"
		s.Notify.Receivers = []site.NotifyReceiver{{Name: "lab-slack", URLFile: file, Body: site.TextBody}}
	})
	ids := g.reads(t, 1)
	var began BatchStarted
	if err := g.callBatch(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "sheet": "sample,reads\nA," + ids[0] + "\n"},
		&began); err != nil {
		t.Fatalf("%+v", err)
	}
	var told NotifyAnswer
	if err := g.callBatch(t, "run.notify", map[string]any{"batch": "b", "url": "receiver:lab-slack"}, &told); err != nil || !told.Added ||
		told.BatchID != began.BatchID || told.RunID != "" || len(told.Notices) != 1 || told.Notices[0].State != "waiting" {
		t.Errorf("%+v %+v", err, told)
	}
	if err := g.callBatch(t, "run.notify", map[string]any{"batch": began.BatchID}, &told); err != nil || told.Added ||
		len(told.Notices) != 1 || told.Notices[0].URL != "receiver:lab-slack" {
		t.Errorf("%+v %+v", err, told)
	}
	for want, args := range map[string]map[string]any{
		"notice_denied":    {"batch": "b", "url": "receiver:other"},
		"batch_not_found":  {"batch": "c", "url": "receiver:lab-slack"},
		"NOTICE-OF":        {"url": "receiver:lab-slack"},
		"NOTICE-OF: both ": {"url": "receiver:lab-slack", "batch": "b", "run_id": "run_" + strings.Repeat("7", 26)},
	} {
		want, _, _ = strings.Cut(want, ":")
		err := g.callBatch(t, "run.notify", args, &told)
		if err == nil || err.Code != want && !strings.Contains(err.Message, "either run_id or batch") && err.Code != "run_not_found" {
			t.Errorf("%s: %+v", want, err)
		}
	}
	// The row is dropped: the batch is over, and the notice is due in that transaction.
	var changed BatchChanged
	if err := g.callBatch(t, "batch.cancel", map[string]any{"batch": "b"}, &changed); err != nil || changed.Changed != 1 || !changed.Over {
		t.Errorf("%+v %+v", err, changed)
	}
	if err := g.callBatch(t, "run.notify", map[string]any{"batch": "b"}, &told); err != nil || told.Notices[0].State != "due" {
		t.Errorf("%+v %+v", err, told)
	}
}
