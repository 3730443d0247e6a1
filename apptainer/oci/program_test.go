//go:build registry

package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/bcrypt"
)

// The registry that most sites run, Debian's docker-registry (CNCF Distribution), with TLS and a password: an image of
// layers and a SIF file that was pushed to it are pulled, by tag and by digest, only with the right credentials and a
// trusted certificate. The image has the bytes that the registry of the other tests gives. It is not part of `make
// test`: see make registry.
//
// proves DATA-06
func TestRegistryProgram(t *testing.T) {
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Fatal("install the Debian package docker-registry, or put a docker-registry into PATH: ", err)
	}
	dir, password := t.TempDir(), rand.Text()
	host := start(t, program, dir, password)
	t.Setenv("SSL_CERT_FILE", dir+"/cert.pem")
	t.Setenv("SSL_CERT_DIR", dir+"/none")

	img := plainImage(t, []tar.Header{entryOf("usr/bin/tool", strings.Repeat("program ", 500_000)), hardOf("usr/bin/other", "usr/bin/tool")},
		[]tar.Header{entryOf("etc/conf", "x")})
	test := newServer(t)
	digest := test.push(t, "lab/tool:1", img)
	push := func(ref string, img v1.Image) {
		t.Helper()
		at, err := name.ParseReference(host + "/" + ref)
		if err == nil {
			lab := remote.WithAuth(&authn.Basic{Username: "lab", Password: password})
			err = remote.Write(at, img, lab, remote.WithTransport(trusting(t, dir)))
		}
		must(t, err)
	}
	push("lab/tool:1", img)
	credentials := func(password string) string {
		path := filepath.Join(t.TempDir(), "config.json")
		auth := base64.StdEncoding.EncodeToString([]byte("lab:" + password))
		must(t, os.WriteFile(path, fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, host, auth), 0o600))
		return path
	}
	puller := func(password string) *Puller {
		p := &Puller{Dir: filepath.Join(t.TempDir(), "cache"), Stall: 2 * time.Minute, Pause: time.Millisecond}
		if password != "" {
			p.Credentials = credentials(password)
		}
		return p
	}
	_, want := mustPull(t, test.puller(t), "docker://"+test.host()+"/lab/tool@"+digest)
	for _, ref := range []string{"/lab/tool:1", "/lab/tool@" + digest} {
		r, data, err := pull(t.Context(), puller(password), "docker://"+host+ref, "")
		must(t, err)
		if !bytes.Equal(data, want) {
			t.Errorf("%s: %d bytes instead of %d", ref, len(data), len(want))
		}
		sum := sha256.Sum256(data)
		t.Logf("docker://HOST%s, %+v: a SIF file of %d bytes, sha256:%s", ref, r.Source, len(data), hex.EncodeToString(sum[:]))
	}
	body := bytes.Repeat([]byte("SIF "), 1_000_000)
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.sylabs.sif.config.v1+json")
	art, err := mutate.AppendLayers(base, static.NewLayer(body, sifLayer))
	must(t, err)
	push("lab/sif:1", art)
	r, data, err := pull(t.Context(), puller(password), "oras://"+host+"/lab/sif:1", "")
	if err != nil || !bytes.Equal(data, body) {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	t.Logf("%s: %d bytes", r.Source, len(data))
	stranger := start(t, program, t.TempDir(), password)
	_, _, err = pull(t.Context(), puller(""), "docker://"+stranger+"/lab/tool:1", "")
	refused(t, "a certificate that nobody vouches for", err, "IMAGE-CERTIFICATE")
	_, _, err = pull(t.Context(), puller("wrong"), "docker://"+host+"/lab/tool:1", "")
	refused(t, "another password", err, "IMAGE-DENIED")
	_, _, err = pull(t.Context(), puller(""), "docker://"+host+"/lab/tool:1", "")
	refused(t, "no credentials", err, "IMAGE-DENIED")
	_, _, err = pull(t.Context(), puller(password), "docker://"+host+"/lab/none:1", "")
	refused(t, "no such image", err, "IMAGE-NOT-THERE")
	_, _, err = pull(t.Context(), puller(password), "docker://"+host+"/lab/tool@sha256:"+strings.Repeat("0", 64), "")
	refused(t, "no such digest", err, "IMAGE-NOT-THERE")
}

// start starts the program with TLS and one user, and returns its host:port.
func start(t *testing.T, program, dir, password string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	host := l.Addr().String()
	l.Close()
	certify(t, dir)
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	must(t, err)
	config := fmt.Sprintf(`version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %q}}
http: {addr: %q, tls: {certificate: %q, key: %q}}
auth: {htpasswd: {realm: lab, path: %q}}
`, dir+"/data", host, dir+"/cert.pem", dir+"/key.pem", dir+"/users")
	for name, text := range map[string]string{"config.yml": config, "users": "lab:" + string(hash) + "\n"} {
		must(t, os.WriteFile(dir+"/"+name, []byte(text), 0o600))
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "serve", dir+"/config.yml")
	cmd.Stdout, cmd.Stderr = &said, &said
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("docker-registry: %s", said.Bytes())
		}
	})
	client := http.Client{Transport: trusting(t, dir)}
	for range 300 {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+host+"/v2/", nil)
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			return host
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("docker-registry does not answer")
	return ""
}

// certify creates a self-signed certificate for this host.
func certify(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert},
		"key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		must(t, os.WriteFile(dir+"/"+name, pem.EncodeToMemory(block), 0o600))
	}
}

// trusting returns a transport that trusts the certificate of certify.
func trusting(t *testing.T, dir string) *http.Transport {
	t.Helper()
	text, err := os.ReadFile(dir + "/cert.pem")
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
}
