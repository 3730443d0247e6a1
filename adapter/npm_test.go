//go:build npm

package adapter

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const everything = "@modelcontextprotocol/server-everything@2026.8.31"

// everythingServer installs the reference server of the protocol's authors from the npm registry into
// build/mcp-everything, once. It needs npm, Node 20 or later and a network, so these tests run with `make
// mcp-upstream`, not with all tests.
func everythingServer(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../build/mcp-everything")
	must(t, err)
	if got, _ := os.ReadFile(filepath.Join(dir, ".version")); string(got) != everything {
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"name":"mcp-everything","private":true}`), 0o644))
		cmd := exec.CommandContext(t.Context(), "npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts",
			everything)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("npm install failed: %v\n%s", err, out)
		}
		must(t, os.WriteFile(filepath.Join(dir, ".version"), []byte(everything), 0o644))
	}
	return filepath.Join(dir, "node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

// The reference server is called over both transports, by the gateway's client. proves ARC-10
func TestEverything(t *testing.T) {
	js := everythingServer(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cmd := exec.CommandContext(t.Context(), "node", js, "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	said, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "listening") {
	}
	if !strings.Contains(lines.Text(), "listening") {
		t.Fatal("the server did not start")
	}
	for _, up := range []string{"url: \"http://127.0.0.1:" + port + "/mcp\"", "command: [node, " + js + ", stdio]"} {
		c, err := parse("adapter.yaml", []byte("upstream: {"+up+"}\n"), os.LookupEnv)
		must(t, err)
		for _, name := range []string{"echo", "get-sum", "get-structured-content", "get-tiny-image", "trigger-long-running-operation"} {
			c.Tools = append(c.Tools, Tool{name, "up." + name})
		}
		b := over(t, c).pin()
		for _, x := range []struct{ tool, input, want string }{
			{"echo", `{"message":"hi"}`, `{"text":"Echo: hi"}`},
			{"get-sum", `{"a":1,"b":2}`, `{"text":"The sum of 1 and 2 is 3."}`},
			{"get-structured-content", `{"location":"Chicago"}`, `"structured":{"conditions":"`},
			{"get-tiny-image", `{}`, `"kind":"image","mime_type":"image/png"`},
		} {
			if out, err := b.call(x.tool, x.input, long); err != nil || !strings.Contains(string(out), x.want) {
				t.Errorf("%s: %s: %.300s %v", up, x.tool, out, err)
			}
		}
		if _, err := b.call("get-sum", `{"a":"one"}`, long); err == nil || !strings.Contains(fmt.Sprint(err), "xpected number") {
			t.Errorf("%s: %v", up, err)
		}
		if _, err := b.call("trigger-long-running-operation", `{"duration":60,"steps":2}`, 3*time.Second); reasonOf(err) != "TIMEOUT false outcome_unknown" {
			t.Errorf("%s: %v", up, err)
		}
		if out, err := b.call("echo", `{"message":"hi"}`, long); err != nil { // the connection is still good
			t.Errorf("%s: %s %v", up, out, err)
		}
	}
}
