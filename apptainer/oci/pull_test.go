package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// layersOfEverything returns layers with all kinds of entries.
func layersOfEverything() [][]tar.Header {
	setuid := entryOf("usr/bin/su", "su")
	setuid.Mode = 0o4755
	private := entryOf("root/private", "for jobs too")
	private.Mode = 0o600
	return [][]tar.Header{{
		dirOf("./"), dirOf("usr/"), dirOf("usr/bin/"), linkOf("bin", "usr/bin"), entryOf("usr/bin/a", "old a"), hardOf("usr/bin/b", "usr/bin/a"),
		entryOf("gone", "x"), dirOf("dir/"), entryOf("dir/lower", "x"), dirOf("dir/sub/"), entryOf("dir/sub/lower", "x"), dirOf("kept/"),
		entryOf("kept/lower", "lower"), setuid, private, {Name: "dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, Mode: 0o666},
		{Name: "fifo", Typeflag: tar.TypeFifo}, entryOf("file-then-dir", "x"), dirOf("dir-then-file/"), entryOf("dir-then-file/x", "x"),
		linkOf("abs", "/usr/bin"), linkOf("up", "../../../usr"), entryOf("tmp/", ""), entryOf("twice", "first"), entryOf("twice", "second"),
		entryOf("ünï cödé\n\"name\"", "x"), linkOf("missing", "nowhere/at/all"),
	}, {
		entryOf("usr/bin/a", "new a"), entryOf(".wh.gone", ""), entryOf("dir/upper", "upper"), entryOf("dir/.wh..wh..opq", ""),
		entryOf("kept/upper", "upper"),
		dirOf("file-then-dir/"), entryOf("file-then-dir/y", "y"), entryOf("dir-then-file", "file"), entryOf("bin/through-link", "l"),
		entryOf("abs/absolute", "l"), entryOf("up/up", "l"), entryOf(".wh..wh.plnk", ""), entryOf(".wh.never-there", ""), hardOf("hard", "bin/b"),
	}}
}

// The file has the root that the layers describe: whiteouts, opaque folders, hard links to bytes that are replaced
// later, entries through links.
func TestLayersBecomeOneRoot(t *testing.T) {
	s := newServer(t)
	layers := layersOfEverything()

	for i, h := range layers[0] {
		if h.Name == "tmp/" {
			layers[0][i] = tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}
		}
	}
	digest := s.push(t, "lab/tool:1", plainImage(t, layers...))
	want := map[string]string{
		"usr/bin/a": "-rw-r--r-- new a", "usr/bin/b": "-rw-r--r-- old a", "hard": "-rw-r--r-- old a", "bin": "-> usr/bin", "abs": "-> /usr/bin",
		"up": "-> ../../../usr", "dir/upper": "-rw-r--r-- upper", "kept/lower": "-rw-r--r-- lower", "kept/upper": "-rw-r--r-- upper",
		"file-then-dir/y": "-rw-r--r-- y", "dir-then-file": "-rw-r--r-- file", "usr/bin/through-link": "-rw-r--r-- l",
		"usr/bin/absolute": "-rw-r--r-- l", "usr/up": "-rw-r--r-- l", "usr/bin/su": "-rwxr-xr-x su", "root/private": "-rw-r--r-- for jobs too",
		"twice": "-rw-r--r-- second", "tmp": "dtrwxrwxrwx", "var/tmp": "dtrwxrwxrwx", "missing": "-> nowhere/at/all",
		"ünï cödé\n\"name\"": "-rw-r--r-- x", "etc/hosts": "-rw-r--r-- ", "work/in": "drwxr-xr-x", baseFile: "-rwxr-xr-x #!/bin/sh\n",
	}
	var first map[string]string
	for _, b := range []string{streamed, unpacked} {
		p := s.puller(t)
		p.Builder = b
		r, data := mustPull(t, p, "docker://"+s.host()+"/lab/tool:1")
		if r.Named != digest || r.Source != "docker://"+s.host()+"/lab/tool:1@"+digest {
			t.Errorf("%+v", r)
		}
		got := look(t, data)
		for name, line := range want {
			if got[name] != line {
				t.Errorf("%s: %s is %q, want %q", b, name, got[name], line)
			}
		}
		for _, name := range []string{"gone", "dir/lower", "dir/sub", "dir/sub/lower", "fifo", "dev/null", ".wh.gone", "dir/.wh..wh..opq",
			".wh..wh.plnk"} {
			if line, there := got[name]; there {
				t.Errorf("%s: %s is there: %s", b, name, line)
			}
		}
		if first == nil {
			first = got
		} else if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("the two ways give different roots: %s", diff)
		}
	}
}

// The same digest gives the same bytes, each time and from each registry; the two programs give different ones.
//
// proves DATA-06
func TestPulledTwiceIsTheSame(t *testing.T) {
	a, b := newServer(t), newServer(t)
	img := plainImage(t, []tar.Header{entryOf("usr/bin/tool", strings.Repeat("program ", 100_000)), hardOf("usr/bin/other", "usr/bin/tool")},
		[]tar.Header{entryOf("etc/conf", "x")})
	digest := a.push(t, "one/tool", img)
	b.push(t, "two/deeper/tool", img)
	sums := map[string]int{}
	for _, builder := range []string{streamed, unpacked} {
		for range 2 {
			for _, source := range []struct {
				*server
				repo string
			}{{a, "one/tool"}, {b, "two/deeper/tool"}} {
				p := source.puller(t)
				p.Builder = builder
				_, data := mustPull(t, p, "docker://"+source.host()+"/"+source.repo+"@"+digest)
				sum := sha256.Sum256(data)
				sums[builder+" "+hex.EncodeToString(sum[:])]++
			}
		}
	}
	if len(sums) != 2 {
		t.Errorf("%v", sums)
	}
}

// Layers may be compressed with gzip or zstd or uncompressed; the image for the machine is chosen from a list.
func TestFormsOfImages(t *testing.T) {
	s := newServer(t)
	data := func(body string) []byte { return pack(t, entryOf("f-"+body, body)) }
	z, err := zstd.NewWriter(nil)
	must(t, err)
	img := image(t, v1.Config{}, layerOf(t, data("zip"), zip(t, data("zip")), types.OCILayer),
		layerOf(t, data("plain"), data("plain"), types.OCIUncompressedLayer),
		layerOf(t, data("zstd"), z.EncodeAll(data("zstd"), nil), types.OCILayerZStd),
		layerOf(t, data("docker"), zip(t, data("docker")), types.DockerLayer))
	other := plainImage(t, []tar.Header{entryOf("wrong", "x")})
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	at, err := name.ParseReference(s.host()+"/xx:multi", name.Insecure)
	if err == nil {
		err = remote.WriteIndex(at, index)
	}
	must(t, err)
	r, sif := mustPull(t, s.puller(t), "docker://"+s.host()+"/xx:multi")
	named, _ := index.Digest()
	chosen, _ := img.Digest()
	if r.Named != named.String() || r.Digest != chosen.String() {
		t.Errorf("%s %s, want %s %s", r.Named, r.Digest, named, chosen)
	}
	got := look(t, sif)
	for _, name := range []string{"zip", "plain", "zstd", "docker"} {
		if got["f-"+name] != "-rw-r--r-- "+name {
			t.Errorf("%s: %q", name, got["f-"+name])
		}
	}
	// An image for another architecture is refused, in a list and alone.
	source, err := ParseSource("docker://"+s.host()+"/xx:multi", "", []string{s.host()})
	must(t, err)
	_, err = s.puller(t).Resolve(t.Context(), source, "ppc64le")
	refused(t, "a list", err, "IMAGE-ARCH")
	if !strings.Contains(fmt.Sprint(err), "linux/arm64") {
		t.Errorf("%v", err)
	}
	s.push(t, "xx:one", img)
	source, _ = ParseSource("docker://"+s.host()+"/xx:one", "", []string{s.host()})
	_, err = s.puller(t).Resolve(t.Context(), source, "arm64")
	refused(t, "alone", err, "IMAGE-ARCH")
}

// A SIF file is downloaded unchanged from a registry or a URL.
func TestSIFFilesAreDownloaded(t *testing.T) {
	s := newServer(t)
	body := bytes.Repeat([]byte("SIF "), 100_000)
	sum := sha256.Sum256(body)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.sylabs.sif.config.v1+json")
	art, err := mutate.AppendLayers(base, static.NewLayer(body, sifLayer))
	must(t, err)
	manifest := s.push(t, "lab/sif:1", art)
	r, data := mustPull(t, s.puller(t), "oras://"+s.host()+"/lab/sif:1")
	if !bytes.Equal(data, body) || r.Digest != manifest || r.Layered() || r.Source != "oras://"+s.host()+"/lab/sif:1@"+manifest {
		t.Errorf("%+v, %d bytes", r, len(data))
	}
	_, _, err = pull(t.Context(), s.puller(t), "docker://"+s.host()+"/lab/sif:1", "")
	refused(t, "docker for oras", err, "IMAGE-FORMAT")
	s.push(t, "lab/layers:1", plainImage(t, []tar.Header{entryOf("x", "x")}))
	_, _, err = pull(t.Context(), s.puller(t), "oras://"+s.host()+"/lab/layers:1", "")
	refused(t, "oras for docker", err, "IMAGE-FORMAT")

	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.ServeContent(w, req, "", testTime, bytes.NewReader(body))
	}))
	t.Cleanup(web.Close)
	p := s.puller(t)
	source, err := ParseSource(web.URL+"/tool:1--0", digest, nil)
	must(t, err)
	r, err = p.Resolve(t.Context(), source, "amd64")
	must(t, err)
	r.http.Transport.(*guard).inner.(*http.Transport).TLSClientConfig = web.Client().Transport.(*http.Transport).TLSClientConfig
	f, err := p.Fetch(t.Context(), r)
	must(t, err)
	if data, err = os.ReadFile(f.Path); err != nil || !bytes.Equal(data, body) {
		t.Errorf("%v, %d bytes", err, len(data))
	}
	if f.Close(); r.Source != web.URL+"/tool:1--0" {
		t.Error(r.Source)
	}
	if _, err := os.Stat(f.Path); err == nil {
		t.Error("the file is still there")
	}
}

var testTime = time.Unix(1_700_000_000, 0)
