package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A path that a token names is read with the rights of the token's Unix user: alice's private file by alice, and not by bob, by a link of
// bob's to it, or by the gateway itself. A token without a user reads nothing by path.
//
// proves SITE-08 ARC-02
// short: jobs of callers
func TestImportWithTheRightsOfATokensUser(t *testing.T) {
	t.Parallel()
	s, _ := callerSite(t)
	s.serve()
	private := s.fileOf("alice", "private.txt", "alice's own\n")
	link := s.fileOf("bob", "beside", "") + ".link"
	shell(t, "bob", `ln -s "$1" "$2"`, private, link)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", host(s.dir)+"/gw.sock")
	}}}
	tokens := map[string]string{}
	for _, user := range []string{"alice", "bob", ""} {
		var tok tokenAnswer
		args := []string{"token", "create", "for-" + user + "x", "--capability", "gateway,read,import", "--project", "demo"}
		if user != "" {
			args = append(args, "--unix-user", user)
		}
		s.ok(&tok, args...)
		tokens[user] = tok.Token
	}
	imports := func(user, path string) (artifact, code string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://gateway/v1/artifacts",
			strings.NewReader(fmt.Sprintf(`{"path":%q,"project_id":"demo"}`, path)))
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+tokens[user])
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		var answer struct {
			ArtifactID string `json:"artifact_id"`
			Code       string `json:"code"`
		}
		must(t, json.Unmarshal(body, &answer))
		return answer.ArtifactID, answer.Code
	}
	for _, x := range []struct{ user, path, code string }{
		{"bob", private, "IMPORT-ACCESS"},
		{"bob", link, "IMPORT-SYMLINK"},
		{"", private, "no_unix_user"},
		{"", "/etc/passwd", "no_unix_user"},
		{"alice", "/etc/shadow", "IMPORT-ACCESS"},
		{"alice", private, ""},
	} {
		artifact, code := imports(x.user, x.path)
		if code != x.code || (artifact != "") != (x.code == "") {
			t.Errorf("%s as %q: %q %q, want %q", x.path, x.user, artifact, code, x.code)
		}
	}
	// lab, as whom the gateway runs, gets nothing by its own rights either.
	if r := s.cli("artifact", "import", private); r.code == 0 {
		t.Errorf("the gateway's user imports alice's private file: %v, want a refusal", r)
	}
}
