package rest

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// A token that slurmctld accepts for its own user alone does not act for others, in the words of Slurm 22.05 too, which says the same when
// slurmctld is down.
//
// proves SITE-06
func TestTokenActsForOthers(t *testing.T) {
	const unspecified = `{"errors":[{"error_number":-1,"error":"Unspecified error","description":"slurmctld unable to load licenses"}]}`
	const auth = `{"errors":[{"error_number":1007,"error":"Protocol authentication error"}]}`
	for name, tc := range map[string]struct {
		version        string
		own, other     []byte
		others, failed bool
	}{
		"22.05":                    {version: "v0.0.38", other: said(500, unspecified)},
		"22.05, slurmctld down":    {version: "v0.0.38", own: said(500, unspecified), other: said(500, unspecified), failed: true},
		"22.05, a token of root":   {version: "v0.0.38", others: true},
		"24.11":                    {version: "v0.0.42", other: said(511, auth)},
		"24.11, a token of root":   {version: "v0.0.42", others: true},
		"24.11, slurmctld is down": {version: "v0.0.42", own: said(502, unspecified), other: said(502, unspecified), failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, tc.version, func(*http.Request, []byte) []byte {
				return said(200, `{"jobs":[],"clusters":[{"name":"alpha"}],"errors":[]}`)
			})
			fine := said(200, `{"licenses":[],`+testMeta+`,"errors":[]}`)
			f.proof = func(r *http.Request) []byte {
				answer := tc.own
				if r.Header.Get("X-SLURM-USER-NAME") == "nobody" {
					answer = tc.other
				}
				if answer == nil {
					return fine
				}
				return answer
			}
			file := filepath.Join(t.TempDir(), "token")
			token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"sun":"lab"}`)) + ".c2ln"
			if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := New(Config{URL: "unix:" + f.socket, User: "lab", TokenFile: file, RPCPerMinute: 1e6})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			if others, err := s.ActsForOthers(t.Context()); others != tc.others || (err != nil) != tc.failed {
				t.Errorf("others %v, %v", others, err)
			}
		})
	}
}
