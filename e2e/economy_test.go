package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fileIDs matches the handles of files.
var fileIDs = regexp.MustCompile(`\bfile_[0-9A-HJKMNP-TV-Z]{26}\b`)

// figure prints a figure as bench does, and fails when it misses its target.
func figure(t *testing.T, name, of string, value, most int) {
	t.Helper()
	fmt.Printf("name=%s %s value=%d target=<=%d\n", name, of, value, most)
	if value > most {
		t.Errorf("%s %s: %d, at most %d", name, of, value, most)
	}
}

// manyTools makes a site whose domain has n tools.
func manyTools(t *testing.T, n int) *site {
	t.Helper()
	s := newSite(t, "probing")
	s.replace("site.yaml", "domain_dir:", "  socket: "+s.dir+"/gw.sock\ndomain_dir:")
	packs := value(filepath.Glob(host(s.dir) + "/domain/toolpacks/*.tool.yaml"))(t)
	for _, p := range packs {
		must(t, os.Remove(p))
	}
	var names strings.Builder
	for i := range n {
		id := fmt.Sprintf("probe.t%03d", i)
		fmt.Fprintf(&names, "  - {tool_id: %s, kind: job_worker}\n", id)
		pack := strings.Replace(batchPack, "id: probe.batch\n", "id: "+id+"\ndescription: Aligns the reads of one sample to a reference, "+
			"sorts them by place, and marks duplicates. Number "+fmt.Sprint(i)+".\n", 1)
		must(t, os.WriteFile(host(s.dir)+"/domain/toolpacks/"+id+".tool.yaml", []byte(pack), 0o644))
	}
	manifest := value(os.ReadFile(host(s.dir) + "/domain/manifest.yaml"))(t)
	head, _, _ := strings.Cut(string(manifest), "tools:\n")
	must(t, os.WriteFile(host(s.dir)+"/domain/manifest.yaml", []byte(head+"tools:\n"+names.String()), 0o644))
	must(t, giveToLab(host(s.dir)))
	return s
}

// What a chat costs its model, in bytes and in calls: the list of tools has at most 12 KB however many tools there are, and what it leaves
// out is reached through the catalogue. make bench-chat prints the figures.
//
// proves MANY-01 AX-12
// short: MCP
func TestChatEconomy(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 20, 200} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := manyTools(t, n)
			d := s.serve()
			c := s.chat(t, "2025-06-18")
			l := value(c.session.ListTools(t.Context(), nil))(t)
			raw := value(json.Marshal(l))(t)
			figure(t, "chat_list_bytes", fmt.Sprint("tools=", n), len(raw), 12_000)
			names := map[string]bool{}
			for _, x := range l.Tools {
				names[x.Name] = true
			}
			fmt.Printf("name=chat_list_entries tools=%d value=%d\n", n, len(names))
			if names["probe_t000"] != (n == 3) {
				t.Errorf("%d tools: %v", n, names)
			}
			switch n {
			case 3:
				s.oneToolLess(t, c, d)
			case 200:
				s.throughTheCatalogue(t, c)
				s.namedByAToken(t)
			}
		})
	}
}

// oneToolLess removes a tool from the domain while a chat is open: the chat gets a notification, and its list no longer
// has the tool.
func (s *site) oneToolLess(t *testing.T, c *chat, d *daemon) {
	s.replace("domain/manifest.yaml", "  - {tool_id: probe.t002, kind: job_worker}\n", "")
	must(t, os.Remove(host(s.dir)+"/domain/toolpacks/probe.t002.tool.yaml"))
	d.signal("HUP")
	select {
	case <-c.changed:
	case <-time.After(time.Until(deadline(t))):
		t.Fatal("the chat got no notification of the list without one tool")
	}
	l := value(c.session.ListTools(t.Context(), nil))(t)
	if raw := text(t, l); strings.Contains(raw, "probe_t002") || !strings.Contains(raw, "probe_t001") {
		t.Errorf("after the reload the chat's list is %s, want it without probe_t002", raw)
	}
}

// namedByAToken lists the tools of a token that names one of many.
func (s *site) namedByAToken(t *testing.T) {
	var tok tokenAnswer
	s.ok(&tok, "token", "create", "naming", "--capability", "gateway,read,import,slurm", "--project", "demo", "--tool", "probe.t150")
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", host(s.dir)+"/gw.sock")
	}}}
	req := value(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://gateway/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)))(t)
	for name, value := range map[string]string{"Authorization": "Bearer " + tok.Token, "Content-Type": "application/json",
		"Accept": "application/json, text/event-stream"} {
		req.Header.Set(name, value)
	}
	res := value(client.Do(req))(t)
	defer res.Body.Close()
	body := value(io.ReadAll(res.Body))(t)
	if !strings.Contains(string(body), `"probe_t150"`) || strings.Contains(string(body), `"probe_t151"`) {
		t.Errorf("the list of a token that names probe.t150 is %d %s, want that tool alone", res.StatusCode, body)
	}
}

// throughTheCatalogue finds a tool page by page and calls it. The call is one of the tool itself: its run, its record, its errors.
func (s *site) throughTheCatalogue(t *testing.T, c *chat) {
	pages, last, seen := 0, "", map[string]bool{}
	for more := true; more; pages++ {
		text := c.say("tool_list", tree{"after": last}, nil)
		for line := range strings.SplitSeq(text, "\n") {
			if id, _, is := strings.Cut(line, "  "); is && strings.HasPrefix(id, "probe.t") {
				seen[id], last = true, id
			}
		}
		more = strings.Contains(text, "There are more")
	}
	if len(seen) != 200 {
		t.Errorf("%d tools on %d pages", len(seen), pages)
	}
	figure(t, "chat_catalogue_pages", "tools=200", pages, 10)
	c.expect(c.say("tool_show", tree{"tool_id": "probe.t123"}, nil), `"reads"`, `tool_run {"tool":"probe_t123","arguments":{"reads":"`)
	in := s.import1(s.file("reads.txt", "reads\n"))
	var r submitted
	c.expect(c.say("tool_run", tree{"tool": "probe.t123", "arguments": tree{"reads": in.ArtifactID}}, &r), "Next: slurm_job_collect")
	var again submitted
	if s.ok(&again, "run", "probe.t123", "--input", "reads="+in.ArtifactID); again.RunID != r.RunID || !again.Replayed {
		t.Errorf("the same call at the shell gives %v, want a replay of %s", again, r.RunID)
	}
	s.ends(r.RunID, "succeeded")
	c.expect(c.say("tool_run", tree{"tool": "probe.t123", "arguments": tree{"raeds": "x"}}, nil), "error: ARGS-SCHEMA",
		`tool_run {"tool":"probe_t123"`)
	c.expect(c.say("tool_run", tree{"tool": "probe.t999", "arguments": tree{}}, nil), "error: tool_not_found")
	c.expect(c.say("tool_run", tree{"arguments": tree{}}, nil), "error: tool_not_found", "Example: tool_run")
	events := string(s.cli("events", "list", "--json").stdout)
	if strings.Contains(events, `"tool.run"`) || strings.Count(events, `"probe.t123"`) < 3 {
		t.Errorf("the records are not of the tool: %.2000s", events)
	}
}

// "QC of these 12 samples, tell me the worst" over imported artifacts and over files not yet imported, and a file by
// its sample's name.
func (s *site) economy(t *testing.T, c *chat, calls, bytes int) {
	figure(t, "chat_qc_calls", "samples=12 imported=12", calls, 5)
	figure(t, "chat_qc_bytes", "samples=12 imported=12", bytes, 8<<10)
	for i := range 12 {
		s.file(fmt.Sprintf("fresh-%02d.txt", i), fmt.Sprintf("fresh %d\n", i))
	}
	must(t, giveToLab(host(s.dir)))
	c = s.chat(t, "")
	var rows []tree
	for i, id := range fileIDs.FindAllString(c.say("artifact_find", tree{"name": "fresh-"}, nil), -1) {
		rows = append(rows, tree{"sample": fmt.Sprintf("F%02d", i), "reads": id})
	}
	c.expect(c.say("batch_run", tree{"tool_id": batchTool, "name": "fresh", "rows": rows}, nil), "batch fresh with 12 rows",
		"Imported for this call: art_", `"fresh-11.txt"`)
	waits := 0
	for !strings.Contains(c.say("batch_status", tree{"batch": "fresh", "wait_seconds": 30}, nil), "12 succeeded") {
		if waits++; waits > 6 {
			t.Fatal("the batch is not over")
		}
	}
	c.expect(c.say("batch_table", tree{"batch": "fresh", "fields": []string{"dir", "env.HOME"}, "sort_by": "dir"}, nil), "12 of 12 rows")
	figure(t, "chat_qc_calls", "samples=12 imported=0", c.calls, 5)
	figure(t, "chat_qc_bytes", "samples=12 imported=0", c.bytes, 8<<10)
	before := c.calls
	c.expect(c.say("artifact_find", tree{"name": "reads-7."}, nil), "reads-7.txt", "file_")
	figure(t, "chat_find_calls", "files=1", c.calls-before, 1)
}
