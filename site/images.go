package site

import (
	"fmt"

	"slurmgate/plan"
)

// Images says how images come from registries.
type Images struct {
	Credentials        string   `yaml:"credentials"`         // absolute path of a file like docker's config.json, mode 0600; default none
	InsecureRegistries []string `yaml:"insecure_registries"` // host:port of registries that are reached without TLS; default none
	PrivateHosts       []string `yaml:"private_hosts"`       // host:port with a private address that a registry may send to; default none
	MaxMB              int      `yaml:"max_mb"`              // MiB, 1..1048576 that are downloaded for an image; default 16384
}

const defaultImageMB = 16 << 10

func (c *checker) images(i Images) {
	c.path("images.credentials", i.Credentials, false)
	for _, l := range []struct {
		field string
		hosts []string
	}{{"images.insecure_registries", i.InsecureRegistries}, {"images.private_hosts", i.PrivateHosts}} {
		for k, h := range l.hosts {
			if !plan.IsHostPort(h) {
				c.value("SITE-HOST", fmt.Sprintf("%s[%d]", l.field, k), h, "host:port", "for example registry.example.org:5000")
			}
		}
	}
	c.bounds("images.max_mb", int64(i.MaxMB), 1, 1<<20)
}
