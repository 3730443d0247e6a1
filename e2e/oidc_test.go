package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sys/unix"
)

// listenInCluster listens on the login node's loopback, from this process: a socket stays in the network it was made in.
func listenInCluster(t testing.TB) net.Listener {
	t.Helper()
	name := value(inCluster("root", "readlink", "/proc/self/ns/net").Output())(t)
	procs := value(filepath.Glob("/proc/[0-9]*/ns/net"))(t)
	for _, p := range procs {
		if link, err := os.Readlink(p); err != nil || link != strings.TrimSpace(string(name)) {
			continue
		}
		there, err := os.Open(p)
		if err != nil {
			continue // that process has ended
		}
		defer there.Close()
		l := value(listenAt(there))(t)
		t.Cleanup(func() { l.Close() })
		return l
	}
	t.Fatal("the network of the login node is not found")
	return nil
}

func listenAt(network *os.File) (net.Listener, error) {
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer here.Close()
	type made struct {
		l   net.Listener
		err error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlocked: a thread that could not go back is not used again
		if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- made{nil, err}
			return
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		done <- made{l, errors.Join(err, unix.Setns(int(here.Fd()), unix.CLONE_NEWNET))}
	}()
	m := <-done
	return m.l, m.err
}

// issuer is an OpenID provider on the login node: its configuration, its key, and any tokens that a test needs.
type issuer struct {
	t   testing.TB
	url string
	key *ecdsa.PrivateKey
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	l := listenInCluster(t)
	i := &issuer{t: t, url: "http://" + l.Addr().String()}
	i.key = value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
	}
	mux := http.NewServeMux()
	mux.Handle("/.well-known/openid-configuration", answer(map[string]string{"issuer": i.url, "jwks_uri": i.url + "/keys"}))
	mux.Handle("/keys", answer(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.key.PublicKey, KeyID: "e", Use: "sig"}}}))
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return i
}

const oidcAudience = "https://slurmgate.example.org"

// token returns a token of a member of a group, which ends after some time.
func (i *issuer) token(user, group string, after time.Duration) string {
	i.t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "e"}}, (&jose.SignerOptions{}).
		WithType("at+jwt"))
	must(i.t, err)
	text := value(jwt.Signed(s).Claims(tree{"iss": i.url, "aud": oidcAudience, "sub": user, "groups": []string{group},
		"iat": time.Now().Add(-time.Hour).Unix(), "exp": time.Now().Add(after).Unix()}).Serialize())(i.t)
	return text
}

// A person of the lab runs a tool over the port with an access token of the lab's own provider, and a chat with the
// same token sees the run. An expired token is rejected; a member of another project finds nothing of this one; a user
// without a grant may do nothing.
//
// proves HTC-07
func TestOIDC(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	i := newIssuer(t)
	s.replace("site.yaml", "watch:\n", fmt.Sprintf(`access:
  oidc:
    - issuer: %s
      audience: %s
      algorithms: [ES256]
      grants:
        - {claim: groups, value: lab, capabilities: [gateway, read, import, slurm], projects: [demo]}
        - {claim: groups, value: others, capabilities: [gateway, read, import, slurm], projects: [elsewhere]}
watch:
`, i.url, oidcAudience))
	p := s.openPort(t)
	p.token = i.token("alice", "lab", 10*time.Minute)
	reads := value(os.ReadFile(host(data("reads-small.fastq.gz"))))(t)
	var in artifactRow
	p.ok(&in, "POST", "/v1/artifacts?label=reads.fastq.gz", string(reads), "Content-Type: application/octet-stream")
	var run struct {
		ToolRunID string `json:"tool_run_id"`
		Output    submitted
	}
	p.ok(&run, "POST", "/v1/tools/seqkit.stats:run", `{"input":{"reads":"`+in.ArtifactID+`"}}`)
	s.ends(run.ToolRunID, "succeeded")
	c := p.chat(t)
	c.expect(c.say("run_list", tree{}, nil), "1 run, newest first", run.ToolRunID)
	for token, want := range map[string]int{i.token("alice", "lab", -2*time.Minute): 401, i.token("bob", "others", time.Minute): 404,
		i.token("carol", "visitors", time.Minute): 403} {
		other := *p
		other.token = token
		if status, b := other.send("GET", "/v1/runs/"+run.ToolRunID, ""); status != want || strings.Contains(string(b), "demo") {
			t.Errorf("the run, read with another token: %d %s, want %d", status, b, want)
		}
	}
	var records struct {
		Events []struct {
			Principal string `json:"principal"`
		}
	}
	s.ok(&records, "events", "list", "--tool", "seqkit.stats", "--chain", "effects")
	if len(records.Events) != 1 || records.Events[0].Principal != "oidc:"+i.url+"#alice" {
		t.Errorf("the records of the run are %+v, want one by the token's subject", records.Events)
	}
	if status, b := p.send("GET", "/.well-known/oauth-protected-resource", ""); status != 200 || !strings.Contains(string(b), i.url) {
		t.Errorf("the metadata of the resource: %d %s, want 200 with the issuer", status, b)
	}
}
