package cli

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"slurmgate/app"
	"slurmgate/fault"
)

// The import of a folder continues with the next gateway when the gateway goes away, and its answer counts when it
// comes before the end of the file has been sent.
func TestFolderAcrossGateways(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "large"), make([]byte, 8<<20), 0o600))
	tmp, err := os.MkdirTemp("", "sg") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(tmp) })
	m, uploads := &mortal{t: t, path: filepath.Join(tmp, "s")}, 0
	m.face = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		_, _ = io.ReadFull(r.Body, make([]byte, 1000))
		if uploads++; uploads == 1 {
			m.die()
			return
		}
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, `{"artifact_id":"art_183BZJHEYXMKZBB4A0X74BNFSS"}`)
	})
	t.Cleanup(m.die)
	l, err := newLink(t.Context(), m.open)
	must(t, err)
	s := &Session{link: l}
	var got app.ImportAnswer
	if err := s.importFolder(t.Context(), app.ImportArgs{Path: &dir}, &got); err != nil || got.ArtifactID == "" || uploads != 2 {
		t.Error(got, fault.Prose(err), uploads)
	}
}
