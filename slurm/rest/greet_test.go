package rest

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// A token that slurmctld accepts for its own user alone does not act for others.
//
// proves SITE-06
func TestTokenActsForOthers(t *testing.T) {
	const unspecified = `{"errors":[{"error_number":-1,"error":"Unspecified error","description":"slurmctld unable to load licenses"}]}`
	const auth = `{"errors":[{"error_number":1007,"error":"Protocol authentication error"}]}`
	for name, tc := range map[string]struct {
		own, other     []byte
		others, failed bool
	}{
		"a token of the user": {other: said(511, auth)},
		"a token of root":     {others: true},
		"slurmctld is down":   {own: said(502, unspecified), other: said(502, unspecified), failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, "v0.0.42", func(*http.Request, []byte) []byte {
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
			must(t, os.WriteFile(file, []byte(token), 0o600))
			s, err := New(Config{URL: "unix:" + f.socket, User: "lab", TokenFile: file, RPCPerMinute: 1e6})
			must(t, err)
			t.Cleanup(s.Close)
			if others, err := s.ActsForOthers(t.Context()); others != tc.others || (err != nil) != tc.failed {
				t.Errorf("others %v, %v", others, err)
			}
		})
	}
}
