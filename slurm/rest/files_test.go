package rest

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// CheckFiles reports tokens of other users, unusable files and missing programs, without a call of slurmrestd. A
// missing or expired token is no problem of the site file: it may be renewed.
//
// proves SITE-06
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	token := func(user string, ends int) string {
		text := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
		return fmt.Sprintf("SLURM_JWT=%s.%s.x\n", text(`{"alg":"HS256"}`), text(fmt.Sprintf(`{"sun":%q,"exp":%d}`, user, ends)))
	}
	own := file("own", token("svc", 1<<33), 0o600)
	for name, c := range map[string]struct {
		config Config
		field  string
	}{
		"a socket":                 {Config{URL: "unix:/nonexistent/s", User: "me"}, ""},
		"a token":                  {Config{URL: "https://h:1", User: "svc", TokenFile: own}, ""},
		"for the group":            {Config{User: "svc", TokenFile: file("group", token("svc", 1<<33), 0o640)}, ""},
		"missing":                  {Config{User: "svc", TokenFile: dir + "/none"}, ""},
		"ended":                    {Config{User: "svc", TokenFile: file("ended", token("svc", 1), 0o600)}, ""},
		"not a token yet":          {Config{User: "svc", TokenFile: file("empty", "", 0o600)}, ""},
		"root":                     {Config{User: "root", TokenFile: own}, "slurm.rest.user"},
		"another user's socket":    {Config{URL: "unix:/s", User: "svc"}, "slurm.rest.user"},
		"a token of another user":  {Config{User: "bob", TokenFile: own}, "slurm.rest.token_file"},
		"a token of SlurmUser":     {Config{User: "svc", TokenFile: file("slurm", token("slurm", 1<<33), 0o600)}, "slurm.rest.token_file"},
		"for everybody":            {Config{User: "svc", TokenFile: file("open", token("svc", 1<<33), 0o644)}, "slurm.rest.token_file"},
		"a folder":                 {Config{User: "svc", TokenFile: dir}, "slurm.rest.token_file"},
		"no authority":             {Config{User: "svc", TokenFile: own, CA: dir + "/none"}, "slurm.rest.ca"},
		"no certificate":           {Config{User: "svc", TokenFile: own, CA: file("ca", "x", 0o600)}, "slurm.rest.ca"},
		"no slurmrestd":            {Config{User: "me", Command: []string{dir + "/none"}}, "slurm.rest.command"},
		"one that is no program":   {Config{User: "me", Command: []string{own}}, "slurm.rest.command"},
		"no program for the token": {Config{User: "svc", TokenCommand: []string{dir + "/none"}}, "slurm.rest.token_command"},
		"a file for a socket":      {Config{URL: "unix:" + own, User: "me"}, "slurm.rest.url"},
	} {
		found := CheckFiles(c.config, "me")
		switch {
		case c.field == "" && len(found) > 0, c.field != "" && (len(found) == 0 || found[0].Field != c.field):
			t.Errorf("CheckFiles with %s finds %+v, want the field %q first, or nothing if it is empty", name, found, c.field)
		case c.field != "" && (found[0].Msg == "" || found[0].Rule == "" || found[0].Hint == ""):
			t.Errorf("CheckFiles with %s finds %+v, want a message, rule and hint", name, found)
		}
	}
}

// Neither the command that prints a token nor a slurmrestd on pipes finds a token, or another variable of Slurm, in its environment.
//
// proves SITE-06
func TestChildrenHaveNoToken(t *testing.T) {
	t.Setenv("SLURM_JWT", "daemon")
	t.Setenv("SLURM_CONF", "/elsewhere")
	printed, _, err := newTokens(Config{TokenCommand: []string{"/usr/bin/env"}}).source(t.Context())
	if err != nil || strings.Contains(printed, "SLURM") || !strings.Contains(printed, "LC_ALL=C") {
		t.Errorf("the token command's environment is %q %v, want LC_ALL=C and no variable of Slurm", printed, err)
	}
	k, err := startChild([]string{"/usr/bin/env"})
	must(t, err)
	defer k.Close()
	text, err := io.ReadAll(k)
	if err != nil || strings.Contains(string(text), "SLURM") || !strings.Contains(string(text), "LC_ALL=C") {
		t.Errorf("the child's environment is %q %v, want LC_ALL=C and no variable of Slurm", text, err)
	}
}
