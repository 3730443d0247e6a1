package e2e

import (
	"os"
	"strings"
	"testing"
)

// Users who ask for it get a mail when a run ends, or at once if it has ended. A mail that cannot be sent is sent
// later, by the next gateway if this one is killed; a mail that the site does not allow is refused.
//
// proves MANY-05
// short: operating it
func TestNotices(t *testing.T) {
	t.Parallel()
	s := newSite(t, "probing")
	mails, down := s.dir+"/mails", s.dir+"/down"
	shell(t, "lab", `mkdir -p "$1" && touch "$2"
printf '#!/bin/sh\n[ ! -e %s ] || exit 75\ncat >%s/$$.tmp && mv %s/$$.tmp %s/$$.eml\n' "$2" "$1" "$1" "$1" >"$1/sendmail"
chmod 755 "$1/sendmail"`, mails, down)
	s.replace("site.yaml", "import:\n",
		"notify: {mail: {domains: [example.org], from: gate@example.org, sendmail: "+mails+"/sendmail}}\nimport:\n")
	d := s.serve()
	s.refused(4, "notice_denied", "notify", s.submit(probePlan("nothing")).RunID, "ana@example.com")
	r := s.submit(s.set(probePlan("nothing"), "placement.partition", "big"))
	type notices struct {
		Added   bool
		Notices []struct {
			State, Result string
			Tries         int
		}
	}
	see := func(n int, state string) (out notices) {
		t.Helper()
		until(t, state, func() bool {
			out = notices{}
			s.ok(&out, "notify", r.RunID)
			return len(out.Notices) == n && out.Notices[n-1].State == state
		})
		return out
	}
	var asked, again notices
	s.ok(&asked, "notify", r.RunID, "ana@example.org")
	s.ok(&again, "notify", r.RunID, "mailto:ana@example.org")
	if !asked.Added || again.Added || len(again.Notices) != 1 {
		t.Errorf("notify for the same address twice returned %+v and %+v, want one notice, added the first time", asked,
			again)
	}
	see(1, "waiting")
	s.ok(nil, "cancel", r.RunID)
	see(1, "due")
	until(t, "a try", func() bool { return see(1, "due").Notices[0].Tries > 0 })
	d.signal("KILL")
	d.ended(t)
	must(t, os.Remove(host(down)))
	s.serve()
	see(1, "delivered")
	s.ok(nil, "notify", r.RunID, "bob@example.org")
	see(2, "delivered")
	text := shell(t, "lab", `cat "$1"/*.eml`, mails)
	for _, want := range []string{"To: ana@example.org", "To: bob@example.org", r.RunID + ": cancelled", "The run is over: cancelled."} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
