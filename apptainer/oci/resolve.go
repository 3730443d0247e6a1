package oci

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"slurmgate/fault"
)

// Resolved is a source whose image is identified by digest.
type Resolved struct {
	Source string // as the lock records it, with the digest that the source's tag meant
	Named  string // sha256:<64 hex>: what the source refers to; for a file the file itself
	Digest string // sha256:<64 hex>: the manifest of the image for Arch, which Named may list among others; for a file the file itself
	Arch   string // in Go's spelling; empty for a SIF file, whose header has it
	Bytes  int64  // to download; -1: unknown

	source Source
	http   *http.Client
	layers []v1.Descriptor
	config *v1.ConfigFile
}

// Layered reports whether a SIF file has to be built, rather than downloaded as it is.
func (r *Resolved) Layered() bool { return r.source.kind == layered }

const (
	maxLayers  = 512
	maxNesting = 3                                                 // lists of lists of manifests
	sifLayer   = "application/vnd.sylabs.sif.layer.v1.sif"         // as Apptainer pushes it
	oldSIF     = "appliciation/vnd.sylabs.sif.layer.tar"           // as old versions wrote it
	schema1    = "application/vnd.docker.distribution.manifest.v1" // with a suffix or two
)

var manifestTypes = []string{string(types.OCIManifestSchema1), string(types.DockerManifestSchema2), string(types.OCIImageIndex),
	string(types.DockerManifestList)}

// Resolve asks the registry for the current image of a source, for an architecture in Go's spelling. A tag is resolved
// once: later requests use digests.
func (p *Puller) Resolve(ctx context.Context, s Source, arch string) (*Resolved, error) {
	if s.kind == file {
		c, err := p.client(ctx, s)
		return &Resolved{Source: s.url, Named: s.digest, Digest: s.digest, Bytes: -1, source: s, http: c}, err
	}
	c, err := p.client(ctx, s)
	if err != nil {
		return nil, err
	}
	r := &Resolved{source: s, http: c, Arch: arch}
	at := cmp.Or(s.digest, s.tag)
	for nesting := 0; ; nesting++ {
		raw, mediaType, digest, err := r.manifest(ctx, at)
		if err != nil {
			return nil, err
		}
		if r.Named == "" {
			r.Named, r.Source = digest, s.text(digest)
		}
		r.Digest = digest
		switch {
		case types.MediaType(mediaType).IsIndex() && s.kind == layered && nesting < maxNesting:
			if at, err = choose(raw, arch, s); err != nil {
				return nil, err
			}
		case types.MediaType(mediaType).IsImage():
			return r, r.read(ctx, raw)
		case strings.HasPrefix(mediaType, schema1):
			return nil, odd("it is in schema 1, which pins no layers", "push it again with a current program")
		default:
			return nil, odd(fmt.Sprintf("it is %s, and no image", fault.Quote(mediaType, 128)), "")
		}
	}
}

// odd returns the fault of an image in an unsupported form.
func odd(msg, hint string) error {
	return fault.Invalid("the image cannot be used", fault.Problem{Code: "IMAGE-FORMAT", Field: "source",
		Rule: "an image in the form of OCI or Docker schema 2", Msg: msg, Hint: hint})
}

// lie returns the fault of a registry whose answer does not match the request.
func lie(msg string) error {
	return fault.New(fault.Tool, "IMAGE-LIE", msg).
		WithNext("pull again; if it stays, the registry or a proxy on the way is broken or changes what it serves: ask those who run it")
}

// manifest reads a manifest by tag or digest. digest is that of the received bytes, and must be the requested one.
func (r *Resolved) manifest(ctx context.Context, at string) (raw []byte, mediaType, digest string, err error) {
	what := r.source.repo.Name() + ":" + at
	if digestForm.MatchString(at) {
		what = r.source.repo.Name() + "@" + at
	}
	res, err := r.ask(ctx, "/manifests/"+at, manifestTypes, maxAnswer)
	if err != nil {
		return nil, "", "", failure("cannot read the manifest of "+what, err)
	}
	defer res.Body.Close()
	if err := answered(res, what); err != nil {
		return nil, "", "", err
	}
	if raw, err = io.ReadAll(res.Body); err != nil {
		return nil, "", "", failure("cannot read the manifest of "+what, err)
	}
	sum := sha256.Sum256(raw)
	digest = "sha256:" + hex.EncodeToString(sum[:])
	said := res.Header.Get("Docker-Content-Digest")
	if digestForm.MatchString(at) && digest != at {
		return nil, "", "", lie(fmt.Sprintf("the registry sent a manifest with %s for %s", digest, what))
	}
	if strings.HasPrefix(said, "sha256:") && said != digest {
		return nil, "", "", lie(fmt.Sprintf("the registry says that %s is %s, but the manifest it sent is %s", what,
			fault.Quote(said, 128), digest))
	}
	var head struct {
		MediaType     string          `json:"mediaType"`
		SchemaVersion int             `json:"schemaVersion"`
		Manifests     json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, "", "", lie("what the registry sent for " + what + " is no manifest")
	}
	mediaType, _, _ = strings.Cut(res.Header.Get("Content-Type"), ";")
	switch {
	case head.SchemaVersion == 1:
		mediaType = schema1
	case head.MediaType != "": // the content, which the digest covers, overrides a header
		mediaType = head.MediaType
	case head.Manifests != nil:
		mediaType = string(types.OCIImageIndex)
	}
	return raw, mediaType, digest, nil
}

// ask sends a request to the repository.
func (r *Resolved) ask(ctx context.Context, path string, accept []string, limit int64) (*http.Response, error) {
	u := r.source.repo.Scheme() + "://" + r.source.host() + "/v2/" + r.source.repo.RepositoryStr() + path
	req, err := http.NewRequestWithContext(withLimit(ctx, limit), http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	for _, a := range accept {
		req.Header.Add("Accept", a)
	}
	return r.http.Do(req)
}

// answered returns the fault of a status that is no success.
func answered(res *http.Response, what string) error {
	switch code := res.StatusCode; {
	case code == http.StatusOK || code == http.StatusPartialContent:
		return nil
	case code == http.StatusNotFound:
		return fault.New(fault.NotFound, "IMAGE-NOT-THERE", "the registry does not have "+what).
			WithNext("check the name; a registry may also answer so where credentials are missing")
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return denied("cannot read "+what, code)
	case code == http.StatusTooManyRequests:
		return fault.New(fault.Transport, "IMAGE-REGISTRY", "the registry limits how often it is asked, and refused "+what).
			WithNext("pull again later; with credentials (images.credentials) the limit is often higher")
	default:
		return fault.New(fault.Transport, "IMAGE-REGISTRY", fmt.Sprintf("the registry answered %d for %s", code, what)).
			WithNext("pull again later")
	}
}

// choose returns the digest of the image for an architecture in a list of manifests.
func choose(raw []byte, arch string, s Source) (string, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return "", odd("its list of images cannot be read", "")
	}
	var found, others []string
	for _, m := range index.Manifests {
		if m.Platform == nil || !(m.MediaType.IsImage() || m.MediaType.IsIndex()) {
			continue
		}
		if m.Platform.OS != "linux" || m.Platform.Architecture != arch {
			others = append(others, m.Platform.OS+"/"+m.Platform.Architecture)
			continue
		}
		if m.Platform.Variant == "" { // the variant that every machine of the architecture runs
			found = slices.Insert(found, 0, m.Digest.String())
			continue
		}
		found = append(found, m.Digest.String())
	}
	if len(found) == 0 {
		return "", fault.Invalid("the image cannot be used", fault.Problem{Code: "IMAGE-ARCH", Field: "source",
			Rule: "an image for linux/" + arch, Msg: "the image's list has only " + fault.Clip(strings.Join(others, ", ")),
			Hint: "choose another tag of " + s.repo.Name() + ", or say with --arch which machines it is for"})
	}
	return found[0], nil
}

// read reads the manifest of one image, and its configuration.
func (r *Resolved) read(ctx context.Context, raw []byte) error {
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil || len(m.Layers) == 0 || len(m.Layers) > maxLayers {
		return odd("its manifest cannot be read, or has no layers or too many", "")
	}
	for _, l := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if l.Size < 0 || l.Digest.Algorithm != "sha256" {
			return odd("a layer has no size or is not named by its SHA-256", "")
		}
	}
	if r.source.kind == artifact {
		return r.readArtifact(m)
	}
	for _, l := range m.Layers {
		if !l.MediaType.IsLayer() && !strings.HasSuffix(string(l.MediaType), "tar+zstd") {
			hint := ""
			if t := string(l.MediaType); t == sifLayer || t == oldSIF {
				hint = "it holds a SIF file: write oras:// instead of docker://"
			}
			return odd(fmt.Sprintf("one of its layers is %s", fault.Quote(string(l.MediaType), 128)), hint)
		}
		r.Bytes += l.Size
	}
	r.layers = m.Layers
	data, err := r.small(ctx, m.Config)
	if err != nil {
		return err
	}
	if r.config, err = v1.ParseConfigFile(bytes.NewReader(data)); err != nil {
		return odd("its configuration cannot be read", "")
	}
	if c := r.config; c.OS != "linux" || c.Architecture != r.Arch {
		return fault.Invalid("the image cannot be used", fault.Problem{Code: "IMAGE-ARCH", Field: "source",
			Rule: "an image for linux/" + r.Arch, Msg: "the image is for " + fault.Quote(c.OS+"/"+c.Architecture, 64),
			Hint: "choose an image of that architecture, or say with --arch which machines it is for"})
	}
	if len(r.config.RootFS.DiffIDs) != len(r.layers) {
		return odd("its configuration counts other layers than its manifest", "")
	}
	return nil
}

// readArtifact finds the SIF file in an artifact.
func (r *Resolved) readArtifact(m *v1.Manifest) error {
	if len(m.Layers) != 1 || string(m.Layers[0].MediaType) != sifLayer && string(m.Layers[0].MediaType) != oldSIF {
		return odd("it does not hold one SIF file", "an image of layers is pulled with docker://")
	}
	r.layers, r.Bytes, r.Arch = m.Layers, m.Layers[0].Size, ""
	return nil
}

// small reads a blob of at most maxAnswer bytes into memory.
func (r *Resolved) small(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	what := "the configuration " + d.Digest.String()
	res, err := r.ask(ctx, "/blobs/"+d.Digest.String(), nil, maxAnswer)
	if err != nil {
		return nil, failure("cannot read "+what, err)
	}
	defer res.Body.Close()
	if err := answered(res, what); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, failure("cannot read "+what, err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != d.Digest.Hex {
		return nil, lie("the registry sent other bytes than those of " + what)
	}
	return data, nil
}
