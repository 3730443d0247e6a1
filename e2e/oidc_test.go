package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

// listenInCluster listens on the login node's loopback, from this process: a socket stays in the network it was made in.
func listenInCluster(t testing.TB) net.Listener {
	t.Helper()
	name, err := inCluster("root", "readlink", "/proc/self/ns/net").Output()
	must(t, err)
	procs, err := filepath.Glob("/proc/[0-9]*/ns/net")
	must(t, err)
	for _, p := range procs {
		if link, err := os.Readlink(p); err != nil || link != strings.TrimSpace(string(name)) {
			continue
		}
		there, err := os.Open(p)
		if err != nil {
			continue // that process has ended
		}
		defer there.Close()
		l, err := listenAt(there)
		must(t, err)
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

// issuer is an OpenID provider on the login node: its configuration, its keys, and any tokens that a test needs.
type issuer struct {
	t   testing.TB
	url string
	ec  *ecdsa.PrivateKey
	rsa *rsa.PrivateKey
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	l := listenInCluster(t)
	i := &issuer{t: t, url: "http://" + l.Addr().String()}
	var err error
	i.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	i.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
	}
	mux := http.NewServeMux()
	mux.Handle("/.well-known/openid-configuration", answer(map[string]string{"issuer": i.url, "jwks_uri": i.url + "/keys"}))
	mux.Handle("/keys", answer(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.ec.PublicKey, KeyID: "e", Use: "sig"},
		{Key: &i.rsa.PublicKey, KeyID: "r", Use: "sig"}}}))
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return i
}

const oidcAudience = "https://slurmgate.example.org"

// claims returns valid claims of a member of the lab with change applied: nil removes a claim.
func (i *issuer) claims(change tree) tree {
	c := tree{"iss": i.url, "aud": oidcAudience, "sub": "alice", "groups": []string{"lab"}, "iat": time.Now().Unix(), "exp": time.Now().
		Add(10 * time.Minute).Unix()}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func (i *issuer) sign(alg jose.SignatureAlgorithm, kid string, key any, change tree) string {
	i.t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, (&jose.SignerOptions{}).
		WithType("at+jwt"))
	must(i.t, err)
	text, err := jwt.Signed(s).Claims(i.claims(change)).Serialize()
	must(i.t, err)
	return text
}

func (i *issuer) good(change tree) string { return i.sign(jose.ES256, "e", i.ec, change) }

// forged returns tokens that must be rejected.
func (i *issuer) forged() map[string]string {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(i.t, err)
	public, err := x509.MarshalPKIXPublicKey(&i.ec.PublicKey)
	must(i.t, err)
	part := func(v any) string {
		b, err := json.Marshal(v)
		must(i.t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	return map[string]string{
		"expired":                         i.good(tree{"exp": time.Now().Add(-2 * time.Minute).Unix()}),
		"another audience":                i.good(tree{"aud": "https://other.example.org"}),
		"a shared secret: the public key": i.sign(jose.HS256, "e", public, nil),
		"no signature":                    part(tree{"alg": "none", "kid": "e", "typ": "at+jwt"}) + "." + part(i.claims(nil)) + ".",
		"signed with a key of somebody's": i.sign(jose.ES256, "e", other, nil),
	}
}

// A person of the lab runs a tool over the port with an access token of the lab's own provider, from the upload to the
// bytes of the result, and a chat with the same token sees it. Malformed, foreign and expired tokens are rejected; a
// member of another project finds nothing of this one; a user without a grant may do nothing.
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
	p.token = i.good(nil)
	reads, err := os.ReadFile(host(data("reads-small.fastq.gz")))
	must(t, err)
	var in artifactRow
	p.ok(&in, "POST", "/v1/artifacts?label=reads.fastq.gz", string(reads), "Content-Type: application/octet-stream")
	var run struct {
		ToolRunID string `json:"tool_run_id"`
		Output    submitted
	}
	p.ok(&run, "POST", "/v1/tools/seqkit.stats:run", `{"input":{"reads":"`+in.ArtifactID+`"}}`)
	var got struct {
		Ready bool
		State string
		Roles map[string]string `json:"artifacts_by_role"`
	}
	until(t, "result", func() bool {
		p.ok(&got, "GET", "/v1/runs/"+run.ToolRunID+"/result?wait_seconds=20", "")
		return got.Ready
	})
	if status, b := p.send("GET", "/v1/artifacts/"+got.Roles["stats"]+"/content", "", "Range: bytes=0-3"); status != 206 ||
		string(b) != "file" || got.State != "succeeded" {
		t.Errorf("GET of the output's first four bytes answers %d %q of a run that %s, want 206 \"file\" of one that succeeded",
			status, b, got.State)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "e2e", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: p.url + "/mcp", DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: withToken(p.token)}}, nil)
	must(t, err)
	defer session.Close()
	c := &chat{t: t, session: session}
	c.expect(c.say("run_list", tree{}, nil), "1 run, newest first", run.ToolRunID)

	paths := []string{"/v1/runs", "/v1/runs/" + run.ToolRunID, "/v1/artifacts/" + in.ArtifactID + "/content", "/v1/tools", "/metrics"}
	for name, token := range i.forged() {
		forged := *p
		forged.token = token
		for _, path := range paths {
			if status, b := forged.send("GET", path, ""); status != 401 || strings.Contains(string(b), "run_") || strings.Contains(string(b),
				token) {
				t.Errorf("%s: %s answers %d %s", name, path, status, b)
			}
		}
		if status, b := forged.send("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			"Accept: application/json, text/event-stream"); status != 401 {
			t.Errorf("%s: a chat answers %d %s", name, status, b)
		}
	}
	stranger := *p
	stranger.token = i.good(tree{"sub": "bob", "groups": []string{"others"}})
	for _, path := range paths[1:3] {
		if status, b := stranger.send("GET", path, ""); status != 404 || strings.Contains(string(b), "demo") {
			t.Errorf("another project's %s: %d %s", path, status, b)
		}
	}
	if status, b := stranger.send("POST", "/v1/tools/seqkit.stats:run", `{"input":{"reads":"`+in.ArtifactID+`"}}`); status != 404 {
		t.Errorf("another project's artifact as an input: %d %s", status, b)
	}
	if status, b := stranger.send("GET", "/v1/runs", ""); status != 200 || !strings.Contains(string(b), `"runs":[]`) {
		t.Errorf("runs of another project: %d %s, want 200 and none", status, b)
	}
	nobody := *p
	nobody.token = i.good(tree{"sub": "carol", "groups": []string{"visitors"}})
	if status, b := nobody.send("GET", "/v1/runs", ""); status != 403 || !strings.Contains(string(b), "capability_denied") {
		t.Errorf("without a grant: %d %s", status, b)
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
