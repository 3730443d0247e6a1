package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// startRegistry starts a registry on this machine, at the address by which the cluster reaches it, and returns its
// host:port.
func startRegistry(t testing.TB) string {
	t.Helper()
	way, err := net.Dial("udp", net.JoinHostPort(sshOf(t).Login.Address, "9")) // sends nothing
	must(t, err)
	own := way.LocalAddr().(*net.UDPAddr).IP.String()
	must(t, way.Close())
	l := value(net.Listen("tcp", net.JoinHostPort(own, "0")))(t)
	s := httptest.NewUnstartedServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return l.Addr().String()
}

// layerOf makes a layer of a folder's content; rename returns each name's place in the image, or leaves it out.
func layerOf(t testing.TB, dir string, rename func(string) string) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		to := rename(rel)
		if err != nil || to == "" || rel == "." {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		target := ""
		if st.Mode()&fs.ModeSymlink != 0 {
			if target, err = os.Readlink(path); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(st, target)
		if err != nil {
			return err
		}
		if h.Name = to; d.IsDir() {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil || !st.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}))
	must(t, w.Close())
	must(t, z.Close())
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	must(t, err)
	return l
}

// pushImage makes an image of layers, puts it into the registry, and returns its digest.
func pushImage(t testing.TB, ref string, env []string, layers ...v1.Layer) string {
	t.Helper()
	img := value(mutate.AppendLayers(empty.Image, layers...))(t)
	c := value(img.ConfigFile())(t)
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Config = "linux", "amd64", v1.Config{Env: env, Entrypoint: []string{"/nowhere"}, User: "1234"}
	img = value(mutate.ConfigFile(img, c))(t)
	at := value(name.ParseReference(ref, name.Insecure))(t)
	must(t, remote.Write(at, img))
	d := value(img.Digest())(t)
	return d.String()
}

type pulled struct {
	Name         string   `json:"name"`
	Digest       string   `json:"digest"`
	Arch         string   `json:"arch"`
	Source       string   `json:"source"`
	SourceDigest string   `json:"source_digest"`
	MadeBy       string   `json:"made_by"`
	Changed      bool     `json:"changed"`
	Pulled       bool     `json:"pulled"`
	Same         bool     `json:"same"`
	Warnings     []string `json:"warnings"`
}

// An image of a registry becomes a SIF file on the login node, which a tool then runs in: its output is that of the program run directly.
// What the registry serves later under the tag changes nothing, the same digest is not built twice, and a build that differs is refused.
//
// proves DATA-06
func TestImageFromARegistry(t *testing.T) {
	t.Parallel()
	at := startRegistry(t)
	root := filepath.Join(world.repo, "build/images/rootfs/seqkit")
	all := layerOf(t, root, func(name string) string {
		if name == "usr/bin/seqkit" {
			return ""
		}
		return name
	})
	program := layerOf(t, root, func(name string) string {
		if name == "usr/bin/seqkit" {
			return "opt/tool/bin/seqkit"
		}
		return ""
	})
	env := []string{"PATH=/opt/tool/bin:/usr/bin:/bin", "TOLD=it's \"so\" `x` $(id) \\ $HOME\nline two", "HOME=/root", "bad-name=1"}
	digest := pushImage(t, at+"/lab/seqkit:2", env, all, program)

	s := newSite(t, "genomics", func(f *siteFile) { f.ImageStore = f.Dir + "/images" })
	s.replace("site.yaml", "watch:\n", "images:\n  insecure_registries: [\""+at+"\"]\nwatch:\n")
	must(t, os.WriteFile(host(s.dir)+"/domain/images.lock.yaml", []byte("version: 1\nimages: []\n"), 0o644))
	must(t, giveToLab(host(s.dir)))
	for _, other := range []string{"samtools", "minimap2"} {
		s.ok(nil, "image", "add", other, world.dir+"/"+other+".sif")
	}
	var p pulled
	s.ok(&p, "image", "pull", "seqkit", "docker://"+at+"/lab/seqkit:2")
	if !p.Changed || !p.Pulled || p.Source != "docker://"+at+"/lab/seqkit:2@"+digest || p.SourceDigest != digest || p.Arch != "amd64" ||
		!strings.HasPrefix(p.MadeBy, "sqfstar ") || len(p.Warnings) != 1 {
		t.Errorf("image pull returned %+v, want a new SIF of %s, made by sqfstar, with one warning", p, digest)
	}
	t.Logf("%+v", p)
	lock := value(os.ReadFile(host(s.dir) + "/domain/images.lock.yaml"))(t)
	for _, text := range []string{"source_digest: " + digest, "made_by: sqfstar ", "digest: " + p.Digest, "source: " + p.Source} {
		if !strings.Contains(string(lock), text) {
			t.Errorf("the lock does not have %q:\n%s", text, lock)
		}
	}
	c := exec.Command(filepath.Join(world.repo, "scripts/images/direct"), append([]string{"seqkit"}, genomics[1].direct...)...)
	c.Dir = filepath.Join(world.repo, "build/data")
	want := value(c.Output())(t)
	var l looked
	s.ok(&l, append(toolArgs(1), "--wait", "--to", s.dir+"/out")...)
	got, err := os.ReadFile(host(s.dir) + "/out/" + genomics[1].output)
	if must(t, err); l.State != "succeeded" || !bytes.Equal(got, want) {
		t.Errorf("seqkit in the pulled image: %v, output\n%s\nwant\n%s", l, got, want)
	}

	// By its digest under another name: nothing is downloaded or built again. Built again on purpose: the same bytes.
	var second, again pulled
	s.ok(&second, "image", "pull", "by-digest", "docker://"+at+"/lab/seqkit@"+digest)
	if second.Digest != p.Digest || second.Pulled || !second.Changed {
		t.Errorf("image pull by digest returned %+v, want the same image under another name, not pulled again", second)
	}
	if s.ok(&again, "image", "pull", "--rebuild", "seqkit", "docker://"+at+"/lab/seqkit@"+digest); !again.Same || again.Digest != p.Digest {
		t.Errorf("image pull --rebuild returned %+v, want the same bytes %s", again, p.Digest)
	}
	// The tag moves: what is pinned stays, and the name is not given to something else in silence.
	moved := pushImage(t, at+"/lab/seqkit:2", env, program, all)
	if f := s.fails(5, "image", "pull", "seqkit", "docker://"+at+"/lab/seqkit:2"); f.Code != "IMAGE-NAME-TAKEN" ||
		!strings.Contains(f.Message, "was moved") || !strings.Contains(f.Message, moved) {
		t.Errorf("image pull of a tag that was moved fails with %v, want IMAGE-NAME-TAKEN that names %s", f, moved)
	}
	// A lock whose image was made in another way, and whose bytes are missing: a new build must not take their place.
	other := "sha256:" + strings.Repeat("5", 64)
	must(t, os.WriteFile(host(s.dir)+"/domain/images.lock.yaml", bytes.ReplaceAll(lock, []byte(p.Digest), []byte(other)), 0o644))
	s.refused(5, "IMAGE-REBUILD", "image", "pull", "seqkit", "docker://"+at+"/lab/seqkit@"+digest)
	must(t, os.WriteFile(host(s.dir)+"/domain/images.lock.yaml", lock, 0o644))
	s.ok(nil, "image", "verify")
	var list struct {
		Images []pulled `json:"images"`
	}
	s.ok(&list, "image", "list")
	for _, i := range list.Images {
		if i.Name == "seqkit" && (i.SourceDigest != digest || i.MadeBy != p.MadeBy) {
			t.Errorf("image list shows %+v, want the source %s, made by %s", i, digest, p.MadeBy)
		}
	}
}

// A pulled image reaches a cluster that only SFTP reaches, and its variables hold in the container: those of the plan before the image's.
//
// proves DATA-06
func TestPulledImageFarAway(t *testing.T) {
	t.Parallel()
	at := startRegistry(t)
	env := []string{"PATH=/opt/tool:/bin", "TOLD=it's \"so\" `x` $(id) \\ $HOME\nline two", "HOME=/root", "NAME=image",
		"LD_LIBRARY_PATH=/opt/lib"}
	digest := pushImage(t, at+"/lab/probe:1", env, layerOf(t, host(world.dir)+"/root", func(name string) string { return name }))
	s := farSite(t, "ssh-sftp.yaml", func(doc tree) { doc["images"] = tree{"insecure_registries": []any{at}} })
	var p pulled
	s.ok(&p, "image", "pull", "--replace", "probe", "docker://"+at+"/lab/probe:1")
	if p.SourceDigest != digest || !p.Changed {
		t.Fatalf("image pull returned %+v, want a new image of %s", p, digest)
	}
	s.ok(nil, "image", "verify")
	s.serve()
	doc := s.set(probePlan("report", "out/result"), "execution.container.image", p.Digest)
	doc = s.set(doc, "execution.command.env", tree{"NAME": "plan", "PLAIN": "1"})
	l := s.mustEnd(s.submit(doc).RunID, "succeeded")
	var r struct {
		Env map[string]string
	}
	must(t, json.Unmarshal(s.bytesOf(l.Roles["result"]), &r))
	for name, want := range map[string]string{"TOLD": "it's \"so\" `x` $(id) \\ $HOME\nline two", "NAME": "plan", "PLAIN": "1", "HOME": "/tmp",
		"LD_LIBRARY_PATH": "/opt/lib"} {
		if got := r.Env[name]; got != want && !(name == "LD_LIBRARY_PATH" && strings.HasPrefix(got, want)) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(r.Env["PATH"], "/opt/tool:/bin") {
		t.Errorf("PATH is %q", r.Env["PATH"])
	}
}
