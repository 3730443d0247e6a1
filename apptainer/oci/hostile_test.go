package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slurmgate/fault"
)

// bigImage has one layer of some hundred kilobytes.
func bigImage(t *testing.T) (v1.Image, v1.Hash) {
	t.Helper()
	var body strings.Builder
	for sum := [32]byte{}; body.Len() < 300_000; sum = sha256.Sum256(sum[:]) {
		fmt.Fprintf(&body, "%x", sum)
	}
	data := pack(t, entryOf("usr/bin/tool", body.String()))
	l := layerOf(t, data, zip(t, data), types.OCILayer)
	d, err := l.Digest()
	must(t, err)
	return image(t, v1.Config{}, l), d
}

// A registry that lies or fails is detected: only bytes that match a digest are used.
//
// proves DATA-06
func TestHostileRegistry(t *testing.T) {
	s := newServer(t)
	img, big := bigImage(t)
	digest := s.push(t, "lab/tool:1", img)
	config, err := img.RawConfigFile()
	must(t, err)
	configured, err := img.ConfigName()
	must(t, err)
	other := s.push(t, "lab/other:1", plainImage(t, []tar.Header{entryOf("x", "evil")}))
	blob, manifest := "/blobs/"+big.String(), "/manifests/"
	answer := func(what, text string, header ...string) liar {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, what) {
				return false
			}
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			_, _ = io.WriteString(w, text)
			return true
		}
	}
	endless := func(what string) liar {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, what) {
				return false
			}
			for chunk := bytes.Repeat([]byte("x"), 64<<10); ; {
				if _, err := w.Write(chunk); err != nil {
					return true
				}
			}
		}
	}
	stall := func(what string) liar {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, what) {
				return false
			}
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, "a few bytes")
			w.(http.Flusher).Flush()
			<-req.Context().Done()
			return true
		}
	}
	status := func(what string, code int) liar {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, what) {
				w.WriteHeader(code)
				return true
			}
			return false
		}
	}
	redirect := func(what, to string) liar {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, what) {
				http.Redirect(w, req, to, http.StatusTemporaryRedirect)
				return true
			}
			return false
		}
	}
	inner := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(inner.Close)
	schema := `{"schemaVersion":1,"name":"lab/tool","fsLayers":[]}`
	for name, c := range map[string]struct {
		lie  liar
		ref  string
		code string
	}{
		"another manifest for a digest": {answer(manifest, `{"schemaVersion":2}`, "Content-Type", string(types.OCIManifestSchema1)), "@" + digest, "IMAGE-LIE"},
		"another digest in the header":  {answer(manifest, `{"schemaVersion":2}`, "Docker-Content-Digest", other), ":1", "IMAGE-LIE"},
		"no manifest":                   {answer(manifest, `<html>`), ":1", "IMAGE-LIE"},
		"schema 1":                      {answer(manifest, schema), ":1", "IMAGE-FORMAT"},
		"a manifest of something else":  {answer(manifest, `{"schemaVersion":2,"mediaType":"x/y"}`), ":1", "IMAGE-FORMAT"},
		"an endless manifest":           {endless(manifest), ":1", "IMAGE-LIE"},
		"an endless layer":              {endless(blob), ":1", "IMAGE-LIE"},
		"an endless login": {func(w http.ResponseWriter, req *http.Request) bool {
			return req.URL.Path == "/v2/" && endless("/v2/")(w, req)
		}, ":1", ""},
		"other bytes of a layer":         {answer(blob, strings.Repeat("x", 300)), ":1", "IMAGE-LIE"},
		"an empty layer":                 {answer(blob, ""), ":1", "IMAGE-LIE"},
		"other bytes of a configuration": {answer("/blobs/"+configured.String(), string(config)+" "), ":1", "IMAGE-LIE"},
		"a manifest that stalls":         {stall(manifest), ":1", "IMAGE-REGISTRY"},
		"a manifest that is gone":        {status(manifest, 404), ":1", "IMAGE-NOT-THERE"},
		"a layer that is gone":           {status(blob, 404), ":1", "IMAGE-NOT-THERE"},
		"a layer that is forbidden":      {status(blob, 403), ":1", "IMAGE-DENIED"},
		"a login that is refused":        {status("/v2/", 401), ":1", "IMAGE-DENIED"},
		"a registry that limits":         {status(manifest, 429), ":1", "IMAGE-REGISTRY"},
		"a registry that fails":          {status(blob, 500), ":1", "IMAGE-REGISTRY"},
		"a redirect without TLS":         {redirect(blob, "http://192.0.2.1/x"), ":1", "IMAGE-PLAIN-HTTP"},
		"a redirect to a private host":   {redirect(blob, inner.URL+"/x"), ":1", "IMAGE-PRIVATE-HOST"},
		"a redirect to the cloud's host": {redirect(blob, "https://169.254.169.254/latest/meta-data/"), ":1", "IMAGE-PRIVATE-HOST"},
		"redirects for ever":             {redirect(blob, "/v2/lab/tool"+blob), ":1", "IMAGE-REGISTRY"},
		"a redirect to a file":           {redirect(blob, "file:///etc/passwd"), ":1", "IMAGE-PLAIN-HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			s.lies(c.lie)
			p := s.puller(t)
			if p.Pause = time.Millisecond; strings.Contains(name, "stalls") {
				p.Stall = 200 * time.Millisecond
			}
			_, _, err := pull(t.Context(), p, "docker://"+s.host()+"/lab/tool"+c.ref, "")
			if c.code != "" {
				refused(t, name, err, c.code)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	s.lies(nil)
	if _, data := mustPull(t, s.puller(t), "docker://"+s.host()+"/lab/tool:1"); len(data) == 0 {
		t.Error("a pull from an honest registry gives no bytes")
	}
}

// The size in an answer's header is checked too: a layer of another length is refused before its bytes are read.
func TestWrongSize(t *testing.T) {
	s := newServer(t)
	img, big := bigImage(t)
	s.push(t, "lab/tool:1", img)
	for _, n := range []int{1, 1 << 40} {
		s.lies(func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, big.String()) {
				return false
			}
			w.Header().Set("Content-Length", strconv.Itoa(n))
			_, _ = io.WriteString(w, "x")
			return true
		})
		_, _, err := pull(t.Context(), s.puller(t), "docker://"+s.host()+"/lab/tool:1", "")
		refused(t, fmt.Sprint(n), err, "IMAGE-LIE")
	}
}

// An interrupted pull continues where it ended, in the same call and in a later one, also if the part on disk was
// damaged.
func TestCutPullsGoOn(t *testing.T) {
	s := newServer(t)
	img, big := bigImage(t)
	s.push(t, "lab/tool:1", img)
	source := "docker://" + s.host() + "/lab/tool:1"
	_, want := mustPull(t, s.puller(t), source)
	part := 0
	cut := func(bytes, times int) liar {
		return func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, big.String()) || req.Method != http.MethodGet {
				return false
			}
			if times--; times < 0 {
				return false
			}
			size, _ := img.Layers()
			n, _ := size[0].Size()
			from := 0
			_, _ = fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &from)
			body, _ := size[0].Compressed()
			all, _ := io.ReadAll(body)
			if from > 0 {
				part++
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, n-1, n))
				w.Header().Set("Content-Length", strconv.FormatInt(n-int64(from), 10))
				w.WriteHeader(http.StatusPartialContent)
			} else {
				w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
			}
			_, _ = w.Write(all[from:min(len(all), from+bytes)])
			return true // the connection ends before all bytes have come
		}
	}
	p := s.puller(t)
	s.lies(cut(1000, 20))
	if _, data := mustPull(t, p, source); !bytes.Equal(data, want) {
		t.Error("a pull that was cut gave other bytes")
	}
	if part < 19 {
		t.Errorf("it went on %d times", part)
	}
	// The registry is down for longer than a pull waits; the next pull continues.
	s.lies(cut(5000, 3))
	lie := s.lie
	s.lies(func(w http.ResponseWriter, req *http.Request) bool {
		if lie(w, req) {
			return true
		}
		if strings.Contains(req.URL.Path, big.String()) {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	})
	if _, _, err := pull(t.Context(), p, source, ""); !fault.Is(err, fault.Transport) {
		t.Fatal(err)
	}
	left := filepath.Join(p.Dir, big.Hex+".part")
	if st, err := os.Stat(left); err != nil || st.Size() != 15000 {
		t.Fatalf("%v %v", st, err)
	}
	s.lies(func(http.ResponseWriter, *http.Request) bool { return false })
	if _, data := mustPull(t, p, source); !bytes.Equal(data, want) || s.asks("bytes=15000-") != 1 {
		t.Errorf("it did not go on: %v", s.asked)
	}
	if list, err := os.ReadDir(p.Dir); err != nil || len(list) != 1 || list[0].Name() != lockName {
		t.Errorf("%v %v", list, err)
	}
	must(t, os.WriteFile(left, bytes.Repeat([]byte("damaged "), 500), 0o600))
	if _, data := mustPull(t, p, source); !bytes.Equal(data, want) {
		t.Error("a damaged part gave other bytes")
	}
	// Cancelled in the middle.
	ctx, cancel := context.WithCancel(t.Context())
	s.lies(func(w http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, big.String()) {
			cancel()
		}
		return false
	})
	if _, _, err := pull(ctx, p, source, ""); !fault.Is(err, fault.Canceled) {
		t.Error(err)
	}
}

// Malicious layers: nothing is written outside, and nothing grows without bound.
func TestHostileLayers(t *testing.T) {
	s := newServer(t)
	outside := filepath.Join(t.TempDir(), "outside")
	many := make([]tar.Header, 0, 300)
	for i := range 300 {
		many = append(many, entryOf("f"+strconv.Itoa(i), ""))
	}
	loop := []tar.Header{linkOf("a", "b"), linkOf("b", "a"), entryOf("a/x", "x")}
	zeros := entryOf("zeros", strings.Repeat("\x00", 8<<20))
	for name, c := range map[string]struct {
		layers []tar.Header
		code   string
	}{
		"a path that leads out":          {[]tar.Header{entryOf("../../"+outside, "x")}, "IMAGE-LAYER"},
		"a path in the middle":           {[]tar.Header{entryOf("usr/../../x", "x")}, "IMAGE-LAYER"},
		"a hard link that leads out":     {[]tar.Header{hardOf("x", "../../../etc/passwd")}, "IMAGE-LAYER"},
		"a hard link to the host":        {[]tar.Header{hardOf("x", "/etc/passwd")}, "IMAGE-LAYER"},
		"links in a circle":              {loop, "IMAGE-LAYER"},
		"a file as a folder":             {[]tar.Header{entryOf("a", "x"), entryOf("a/b", "x")}, "IMAGE-LAYER"},
		"a name of a megabyte":           {[]tar.Header{entryOf(strings.Repeat("n", 1<<19), "x")}, "IMAGE-LAYER"},
		"too many files":                 {many, "IMAGE-SIZE"},
		"a bomb":                         {[]tar.Header{zeros}, "IMAGE-SIZE"},
		"a whiteout of the folder above": {[]tar.Header{entryOf("a/.wh...", "")}, "IMAGE-LAYER"},
	} {
		t.Run(name, func(t *testing.T) {
			s.push(t, "lab/evil:1", plainImage(t, c.layers))
			for _, b := range []string{streamed, unpacked} {
				p := s.puller(t)
				p.Builder, p.Limits = b, Limits{Bytes: 8 << 20, UnpackedBytes: 4 << 20, Files: 200}
				_, _, err := pull(t.Context(), p, "docker://"+s.host()+"/lab/evil:1", "")
				refused(t, name, err, c.code)
				if list, err := os.ReadDir(p.Dir); err == nil {
					for _, e := range list {
						if e.IsDir() {
							t.Errorf("%s is left", e.Name())
						}
					}
				}
			}
		})
	}
	// A symbolic link out of the root stays inside: writes through it end inside the root.
	s.push(t, "lab/link:1", plainImage(t, []tar.Header{linkOf("way", outside), linkOf("up", "../../../../../../../../../.."+outside)},
		[]tar.Header{entryOf("way/one", "1"), entryOf("up/two", "2")}))
	for _, b := range []string{streamed, unpacked} {
		p := s.puller(t)
		p.Builder = b
		_, data := mustPull(t, p, "docker://"+s.host()+"/lab/link:1")
		got := look(t, data)
		inside := strings.TrimPrefix(outside, "/")
		if got[inside+"/one"] != "-rw-r--r-- 1" || got[inside+"/two"] != "-rw-r--r-- 2" {
			t.Errorf("%s: %q %q", b, got[inside+"/one"], got[inside+"/two"])
		}
		if _, err := os.Lstat(outside); err == nil {
			t.Error("something was written outside")
		}
	}
	// A file of 2^40 zero bytes in a few blocks of an archive.
	data := pax(t, "sparse", "GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=sparse", "GNU.sparse.realsize=1099511627776")
	s.push(t, "lab/sparse:1", image(t, v1.Config{}, layerOf(t, data, zip(t, data), types.OCILayer)))
	_, _, err := pull(t.Context(), s.puller(t), "docker://"+s.host()+"/lab/sparse:1", "")
	refused(t, "sparse", err, "IMAGE-SIZE")
	// The sum of all layers is limited, too many declared bytes are refused before any is read, and a layer with
	// another uncompressed digest is refused.
	img, big := bigImage(t)
	s.push(t, "lab/tool:1", img)
	p := s.puller(t)
	p.Limits = Limits{Bytes: 1000}
	s.lies(nil)
	_, _, err = pull(t.Context(), p, "docker://"+s.host()+"/lab/tool:1", "")
	if refused(t, "declared", err, "IMAGE-SIZE"); s.asks(big.String()) != 0 {
		t.Error("a layer was requested")
	}
	wrong := pack(t, entryOf("x", "x"))
	s.push(t, "lab/wrong:1", image(t, v1.Config{}, layerOf(t, []byte("not that"), zip(t, wrong), types.OCILayer)))
	_, _, err = pull(t.Context(), s.puller(t), "docker://"+s.host()+"/lab/wrong:1", "")
	refused(t, "another diff id", err, "IMAGE-FORMAT")
	cut := zip(t, wrong)
	s.push(t, "lab/cut:1", image(t, v1.Config{}, layerOf(t, wrong, cut[:len(cut)-10], types.OCILayer)))
	_, _, err = pull(t.Context(), s.puller(t), "docker://"+s.host()+"/lab/cut:1", "")
	refused(t, "a cut layer", err, "IMAGE-FORMAT")
}

// pax builds an archive with one sparse file by hand: Go's writer cannot.
func pax(t *testing.T, name string, records ...string) []byte {
	t.Helper()
	var body strings.Builder
	for _, r := range records {
		n := len(r) + 2
		for n != len(strconv.Itoa(n))+len(r)+2 {
			n = len(strconv.Itoa(n)) + len(r) + 2
		}
		fmt.Fprintf(&body, "%d %s\n", n, r)
	}
	block := func(name string, kind byte, size int) []byte {
		b := make([]byte, 512)
		copy(b, name)
		copy(b[100:], "0000644\x00")
		copy(b[108:], "0000000\x00")
		copy(b[116:], "0000000\x00")
		copy(b[124:], fmt.Sprintf("%011o\x00", size))
		copy(b[136:], "00000000000\x00")
		copy(b[148:], "        ")
		b[156] = kind
		copy(b[257:], "ustar\x0000")
		sum := 0
		for _, c := range b {
			sum += int(c)
		}
		copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
		return b
	}
	pad := func(s string) []byte { return append([]byte(s), make([]byte, (512-len(s)%512)%512)...) }
	var out []byte
	out = append(out, block("PaxHeaders/x", 'x', body.Len())...)
	out = append(out, pad(body.String())...)
	out = append(out, block(name, '0', 512)...)
	out = append(out, pad("0\n")...)
	out = append(out, make([]byte, 512-len(pad("0\n"))%512)...)
	return append(out, make([]byte, 1024)...)
}

// A tag is resolved once: later changes of the tag do not affect a pull, and the digest is recorded.
func TestTagIsResolvedOnce(t *testing.T) {
	s := newServer(t)
	img, _ := bigImage(t)
	digest := s.push(t, "lab/tool:1", img)
	other := plainImage(t, []tar.Header{entryOf("x", "other")})
	p := s.puller(t)
	source, err := ParseSource("docker://"+s.host()+"/lab/tool:1", "", p.Insecure)
	must(t, err)
	r, err := p.Resolve(t.Context(), source, "amd64")
	must(t, err)
	s.push(t, "lab/tool:1", other)
	f, err := p.Fetch(t.Context(), r)
	must(t, err)
	data, err := os.ReadFile(f.Path)
	if f.Close(); err != nil || look(t, data)["usr/bin/tool"] == "" || !strings.HasSuffix(r.Source, "@"+digest) {
		t.Errorf("%v %s", err, r.Source)
	}
	_, _, err = pull(t.Context(), p, "docker://"+s.host()+"/lab/tool:1", "sha256:"+hex.EncodeToString(make([]byte, 32)))
	refused(t, "a tag with the digest that it must have", err, "IMAGE-NOT-THERE")
	if r, _ := mustPull(t, p, "docker://"+s.host()+"/lab/tool:1@"+digest); !strings.HasSuffix(r.Source, ":1@"+digest) {
		t.Error(r.Source)
	}
}
