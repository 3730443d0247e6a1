package oci

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"slurmgate/fault"
)

// kind is the form in which a source's image is stored.
type kind string

const (
	layered  kind = "docker" // layers of an OCI image, from which a SIF file is built
	artifact kind = "oras"   // a SIF file that a registry stores as an artifact
	file     kind = "https"  // a SIF file at a URL
)

// Source is the origin of an image.
type Source struct {
	kind   kind
	repo   name.Repository // of a registry
	tag    string          // empty: named by its digest alone
	digest string          // sha256:<64 hex>; empty: the tag decides
	url    string          // of a file
}

const (
	sourceRule = "docker://REPOSITORY@sha256:<64 hex digits>, docker://REPOSITORY:TAG, oras://… in the same way, or https://… of a SIF file"
	maxSource  = 512
)

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	// plainSource has no characters that a message, a lock file or a header would have to quote.
	plainSource = regexp.MustCompile(`^[A-Za-z0-9._~:/@%+=,()\[\]-]+$`)
)

// ParseSource parses a source. digest, sha256:<64 hex>, is required for a file. For a tag it is optional, and the tag
// must resolve to it. insecure lists the registries, host:port, that are reached without TLS.
func ParseSource(text, digest string, insecure []string) (Source, error) {
	refuse := func(field, rule, msg, hint string, next ...fault.Step) (Source, error) {
		return Source{}, fault.Invalid("", fault.Problem{Code: "IMAGE-SOURCE", Field: field, Rule: rule, Msg: msg, Hint: hint, Next: next})
	}
	if digest != "" && !digestForm.MatchString(digest) {
		return refuse("digest", "sha256:<64 hex digits>", fault.Quote(digest, 128)+" is not a digest", "")
	}
	if u, err := url.Parse(text); err == nil && (u.User != nil || u.RawQuery != "" || u.Fragment != "") && u.Host != "" {
		return refuse("source", "no user, password, query or fragment", "a source is recorded, so it must hold no credentials",
			"put credentials into the file that images.credentials of the site file names, or download the file and add it",
			fault.Do("image add"))
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || len(text) > maxSource || !plainSource.MatchString(text) {
		return refuse("source", sourceRule, fault.Quote(text, 128)+" does not name an image", "")
	}
	s := Source{kind: kind(scheme), digest: digest}
	switch s.kind {
	case file:
		if host, path, _ := strings.Cut(rest, "/"); host == "" || path == "" {
			return refuse("source", sourceRule, "the URL names no file", "")
		}
		if digest == "" {
			return refuse("digest", "the SHA-256 of the SIF file, with --digest sha256:<64 hex digits>",
				"a file at a URL may be replaced at any time, and nothing pins this one", "take the digest from those who publish the file")
		}
		s.url = text
		return s, nil
	case layered, artifact:
	default:
		return refuse("source", sourceRule, fmt.Sprintf("images cannot come from %q", scheme+"://"), "")
	}
	rest, pinned, found := strings.Cut(rest, "@")
	switch {
	case found && !digestForm.MatchString(pinned):
		return refuse("source", sourceRule, fault.Quote(pinned, 128)+" is not a digest", "")
	case found && digest != "" && digest != pinned:
		return refuse("digest", "the digest of the source", "source and --digest name different images", "give one of them")
	case found:
		s.digest = pinned
	}
	if at := strings.LastIndexByte(rest, ':'); at > strings.LastIndexByte(rest, '/') {
		rest, s.tag = rest[:at], rest[at+1:]
	}
	if s.tag == "" && s.digest == "" {
		s.tag = "latest"
	}
	var opts []name.Option
	if host, _, _ := strings.Cut(rest, "/"); listed(insecure, host) {
		opts = append(opts, name.Insecure)
	}
	repo, err := name.NewRepository(rest, opts...)
	if err == nil && s.tag != "" {
		_, err = name.NewTag(rest + ":" + s.tag)
	}
	if err != nil {
		return refuse("source", sourceRule, err.Error(), "")
	}
	s.repo = repo
	return s, nil
}

// text returns the source with the digest that it was resolved to.
func (s Source) text(digest string) string {
	if s.kind == file {
		return s.url
	}
	if s.tag != "" {
		return string(s.kind) + "://" + s.repo.Name() + ":" + s.tag + "@" + digest
	}
	return string(s.kind) + "://" + s.repo.Name() + "@" + digest
}

// host returns the source's host, with the port if it has one.
func (s Source) host() string {
	if s.kind == file {
		u, err := url.Parse(s.url)
		if err != nil {
			return ""
		}
		return u.Host
	}
	return s.repo.RegistryStr()
}
