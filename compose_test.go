package slurmgate_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// In the compose file the worker alone has the key, and only the gateway reaches the worker.
//
// proves AX-10
func TestComposeFile(t *testing.T) {
	const file = "packaging/workers/compose.yaml"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	type service struct {
		Environment   map[string]string
		Secrets       []string
		Ports, Expose []string
		Network       string `yaml:"network_mode"`
		ReadOnly      bool   `yaml:"read_only"`
	}
	var doc struct{ Services map[string]service }
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	gateway, worker := doc.Services["gateway"], doc.Services["webcrawl"]
	if len(worker.Secrets) != 1 || worker.Environment["FIRECRAWL_API_KEY_FILE"] != "/run/secrets/"+worker.Secrets[0] || !worker.ReadOnly ||
		worker.Network != "service:gateway" || len(worker.Ports)+len(worker.Expose) > 0 {
		t.Errorf("the service webcrawl is %+v, want read-only, in the gateway's network, and with its key as a secret", worker)
	}
	if !gateway.ReadOnly || len(gateway.Secrets) > 0 || len(gateway.Environment) != 1 || len(gateway.Ports) != 1 ||
		!strings.HasPrefix(gateway.Ports[0], "127.0.0.1:") {
		t.Errorf("the service gateway is %+v, want read-only, without secrets, and one port on loopback", gateway)
	}
	manifest, err := os.ReadFile("domains/workers/manifest.yaml")
	if err != nil || !strings.Contains(string(manifest), `"http://`+worker.Environment["WEBCRAWL_LISTEN"]+`"`) {
		t.Errorf("the shipped manifest does not call %s: %v", worker.Environment["WEBCRAWL_LISTEN"], err)
	}
	program, err := exec.LookPath("docker-compose")
	if err != nil {
		t.Log("docker-compose is not here: only the file's content was checked")
		return
	}
	if out, err := exec.Command(program, "-f", file, "config", "-q").CombinedOutput(); err != nil {
		t.Errorf("docker-compose config: %v\n%s", err, out)
	}
}
