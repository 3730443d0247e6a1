package oci

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// maxCredentials bounds a file of credentials; a real one has a few hundred bytes.
const maxCredentials = 1 << 20

// credentials returns a registry's credentials from a file in the form of docker's config.json:
//
//	{"auths": {"registry.example:5000": {"auth": "<base64 of USER:PASSWORD>"}}}
//
// Programs that such a file may name (credsStore, credHelpers) are not run. No message contains any of the file's
// content.
func credentials(path, host string) (authn.Authenticator, error) {
	if path == "" {
		return authn.Anonymous, nil
	}
	refuse := func(msg, next string) (authn.Authenticator, error) {
		return nil, fault.New(fault.Validation, "IMAGE-CREDENTIALS", "the file "+path+", which images.credentials names, "+msg).WithNext(next)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "IMAGE-CREDENTIALS", "cannot read the file that images.credentials names", err).
			WithNext("correct images.credentials in the site file, and let only the user who pulls images read the file")
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return refuse("is not a regular file", "name the file itself")
	}
	if owner, ok := st.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return refuse("belongs to another user", "chown it to the user who pulls images, or to root")
	}
	if st.Mode().Perm()&0o077 != 0 {
		return refuse(fmt.Sprintf("has mode %04o, so others can use it", st.Mode().Perm()), "chmod 600 "+path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCredentials+1))
	var doc struct {
		Auths       map[string]authn.AuthConfig `json:"auths"`
		CredHelpers map[string]string           `json:"credHelpers"`
	}
	if err != nil || len(data) > maxCredentials || json.Unmarshal(data, &doc) != nil {
		return refuse("is not a file in the form of docker's config.json", `write {"auths": {"REGISTRY": {"auth": "<base64 of USER:PASSWORD>"}}}`)
	}
	for key, auth := range doc.Auths {
		if hostOf(key) == hostOf(host) {
			return authn.FromConfig(auth), nil
		}
	}
	if _, helper := doc.CredHelpers[host]; helper {
		return refuse("names a program for "+host+"; programs are not run for credentials", "write the credentials into auths")
	}
	return authn.Anonymous, nil
}

// hostOf returns the host in a key of auths, which may be a URL. Docker Hub has several names.
func hostOf(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	key, _, _ = strings.Cut(key, "/")
	switch key {
	case "docker.io", "registry-1.docker.io":
		return "index.docker.io"
	}
	return strings.ToLower(key)
}
