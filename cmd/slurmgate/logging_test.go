package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/policy"
	"slurmgate/site"
)

// What the gateway logs is what logging.level says. proves AX-08
func TestLoggingLevel(t *testing.T) {
	words := []string{"debug", "info", "warn", "error"}
	for i, word := range append(words, "") {
		text := "version: 1\n"
		if word != "" {
			text += "logging: {level: " + word + "}\n"
		} else {
			i = 1 // info when policy says nothing
		}
		p, err := policy.Parse("p", []byte(text), os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		log, level := newLog(&out)
		setLevel(log, level, p)
		log.Debug("debug.")
		log.Info("info.")
		log.Warn("warn.")
		log.Error("error.")
		for k, other := range words {
			if got := strings.Contains(out.String(), other+"."); got != (k >= i) {
				t.Errorf("level %q, message %q: %v", word, other, got)
			}
		}
	}
}

// The level applies to the first line that depends on the domain: a gateway that logs errors only does not warn while it starts.
func TestLoggingLevelAtStart(t *testing.T) {
	for level, warns := range map[string]bool{"warn": true, "error": false} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("../../app/testdata/before/domain")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte("version: 1\ntool_allowlist: []\nlogging: {level: "+level+"}\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		s := &site.Site{DomainDir: dir, Gateway: site.Gateway{StateDir: t.TempDir()}}
		if err := os.Chmod(s.Gateway.StateDir, 0o700); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		log, variable := newLog(&out)
		g, err := openGateway(t.Context(), s, toChange, log, variable)
		if err == nil {
			g.Close()
			t.Fatal("there is no site")
		}
		if got := strings.Contains(out.String(), "domain and policy do not fit"); got != warns {
			t.Errorf("level %s: %q (%v)", level, out.String(), err)
		}
	}
}
