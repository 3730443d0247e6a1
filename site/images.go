package site

// Images configures how images are fetched from registries.
type Images struct {
	// Absolute path of a file like docker's config.json: {"auths": {"registry.example.org": {"auth": "<base64 of USER:PASSWORD>"}}}.
	// It belongs to the user who pulls, or to root, and has mode 0600. Programs that it names (credHelpers) are not run.
	Credentials string `yaml:"credentials" is:"path?"`
	// Registries, host:port, that are reached without TLS. An attacker on the network can see and change what is not named by a digest.
	InsecureRegistries []string `yaml:"insecure_registries" is:"registry"`
	// Hosts, host:port, with private addresses that a registry may send to, for layers or tokens. Without an entry a registry cannot
	// make the gateway's host connect to addresses of this site.
	PrivateHosts []string `yaml:"private_hosts" is:"registry"`
	// MiB that are downloaded for an image. Unpacked it may have six times as much.
	MaxMB int `yaml:"max_mb" default:"16384" min:"1" max:"1048576"`
}
