package oci

import (
	"archive/tar"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Credentials come from a file that only its owner can read, reach only the registry, and are in no message.
//
// proves DATA-06
func TestCredentials(t *testing.T) {
	s := newServer(t)
	s.push(t, "lab/tool:1", plainImage(t, []tar.Header{entryOf("x", "x")}))
	const secret = "hunter2-hunter2"
	s.lies(func(w http.ResponseWriter, req *http.Request) bool {
		if _, password, _ := req.BasicAuth(); password == secret {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	path := filepath.Join(t.TempDir(), "config.json")
	write := func(mode os.FileMode, text string) {
		t.Helper()
		_ = os.Remove(path)
		must(t, os.WriteFile(path, []byte(text), mode))
	}
	auth := func(host, password string) string {
		return fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte("lab:"+password)))
	}
	source := "docker://" + s.host() + "/lab/tool:1"
	for name, c := range map[string]struct {
		mode       os.FileMode
		text, code string
	}{
		"right":               {0o600, auth(s.host(), secret), ""},
		"as a URL":            {0o400, auth("https://"+s.host()+"/v2/", secret), ""},
		"wrong":               {0o600, auth(s.host(), "other-"+secret), "IMAGE-DENIED"},
		"of another registry": {0o600, auth("registry.example:5000", secret), "IMAGE-DENIED"},
		"for everybody":       {0o644, auth(s.host(), secret), "IMAGE-CREDENTIALS"},
		"no JSON":             {0o600, secret, "IMAGE-CREDENTIALS"},
		"a program":           {0o600, `{"credHelpers": {"` + s.host() + `": "x"}}`, "IMAGE-CREDENTIALS"},
	} {
		write(c.mode, c.text)
		p := s.puller(t)
		p.Credentials = path
		_, _, err := pull(t.Context(), p, source, "")
		if c.code == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.code != "" {
			refused(t, name, err, c.code)
		}
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := s.puller(t)
	p.Credentials = path + ".missing"
	_, _, err := pull(t.Context(), p, source, "")
	refused(t, "no file", err, "IMAGE-CREDENTIALS")
}

// Sources that cannot be pulled, or would record credentials, are refused before any request.
func TestSources(t *testing.T) {
	good := "sha256:" + strings.Repeat("a", 64)
	for _, c := range []struct{ source, digest string }{
		{"", ""}, {"seqkit", ""}, {"seqkit.sif", ""}, {"ftp://x/y", ""}, {"docker-daemon://x", ""}, {"docker://", ""},
		{"docker://UPPER/case", ""},
		{"docker://x/y@sha256:12", ""}, {"docker://x/y@md5:12", ""}, {"docker://x/y@" + good, "sha256:" + strings.Repeat("b", 64)},
		{"docker://x/y:tag with space", ""}, {"docker://user:password@x.example/y:1", ""}, {"https://user:password@x.example/y.sif", good},
		{"https://x.example/y.sif?token=1", good}, {"https://x.example/y.sif", ""}, {"https://x.example", good}, {"http://x.example/y.sif", good},
		{"https://x.example/y.sif", "sha256:12"}, {"docker://x/y:1\nsource: other", ""}, {"docker://" + strings.Repeat("x", 600), ""},
	} {
		_, err := ParseSource(c.source, c.digest, nil)
		refused(t, c.source, err, "IMAGE-SOURCE")
		if strings.Contains(fmt.Sprint(err), "password") && !strings.Contains(fmt.Sprint(err), "no user, password") {
			t.Errorf("%q: %v", c.source, err)
		}
	}
	for source, want := range map[string]string{
		"docker://seqkit":                            "docker://index.docker.io/library/seqkit:latest@" + good,
		"docker://quay.io/lab/seqkit:2.10--h1":       "docker://quay.io/lab/seqkit:2.10--h1@" + good,
		"docker://r.example:5000/lab/seqkit@" + good: "docker://r.example:5000/lab/seqkit@" + good,
		"oras://ghcr.io/lab/tool:1":                  "oras://ghcr.io/lab/tool:1@" + good,
	} {
		s, err := ParseSource(source, "", nil)
		if err != nil || s.text(good) != want {
			t.Errorf("%s: %v %s", source, err, s.text(good))
		}
	}
}

// Variables of an image are written so that Apptainer's shell reads their exact values.
func TestEnvironment(t *testing.T) {
	script, left := environment([]string{"PATH=/opt/bin:/bin", "A=it's \"x\" `y` $(id) \\", "EMPTY=", "NOTHING", "HOME=/root",
		"bad-name=1", "IFS=x", "APPTAINER_BIND=/", "B=two\nlines"})
	want := "#!/bin/sh\nexport PATH=\"/opt/bin:/bin\"\n" +
		"export A=\"it's \\\"x\\\" \\`y\\` \\$(id) \\\\\"\nexport EMPTY=\"\"\nexport B=\"two\nlines\"\n"
	if script != want || strings.Join(left, " ") != "HOME bad-name IFS APPTAINER_BIND" {
		t.Errorf("%s\n%v", script, left)
	}
}

// An untrusted certificate is reported as such, although the library then tries plain HTTP for a host with a private
// address, which is refused.
//
// proves DATA-06
func TestUntrustedCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	p := &Puller{Dir: filepath.Join(t.TempDir(), "cache"), Stall: 2 * time.Minute, Pause: time.Millisecond}
	_, _, err := pull(t.Context(), p, "docker://"+strings.TrimPrefix(s.URL, "https://")+"/lab/tool:1", "")
	refused(t, "docker", err, "IMAGE-CERTIFICATE")
	_, _, err = pull(t.Context(), p, s.URL+"/tool.sif", "sha256:"+strings.Repeat("a", 64))
	refused(t, "a URL", err, "IMAGE-CERTIFICATE")
}
