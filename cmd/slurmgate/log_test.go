package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// The gateway's own log has no secret of a job, a command or a caller.
func TestLogWithoutSecrets(t *testing.T) {
	var out bytes.Buffer
	log, _ := newLog(&out)
	log.Warn("a job said password=hunter2hunter2", "err", errors.New("sbatch: --export=DB_PASSWORD=hunter2hunter2"), "text",
		"https://u:hunter2hunter2@host/")
	if got := out.String(); strings.Contains(got, "hunter2") || strings.Count(got, "[redacted]") != 3 {
		t.Error(got)
	}
}
