package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A signer that is configured wrongly, or that root starts, ends with the status after which systemd does not start it again.
//
// proves SITE-08
func TestSignerMisconfigured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "signer.yaml")
	for text, want := range map[string]string{
		"":                            "docs/identity.md",
		"ca: {key: ca}\nminutes: 0\n": "minutes: 0 is out of range",
		"ca: {key: /nosuch/ca}\ngateway_users: [root]\nsource_addresses: [127.0.0.1]\nlog: /nosuch/log\n": "root",
	} {
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, more := range []string{"", "--check", "--public-key"} {
			args := []string{"signer", "--config", file}
			if more != "" {
				args = append(args, more)
			}
			var out, errs bytes.Buffer
			if status := realMain(t.Context(), args, &out, &errs); status != 78 || !strings.Contains(errs.String(), want) || out.Len() > 0 {
				t.Errorf("%v with %q: status %d, want 78: %s%s", args, text, status, &out, &errs)
			}
		}
		os.Remove(file)
	}
}
