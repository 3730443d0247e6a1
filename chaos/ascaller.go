package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// Cases over caller: the gateway runs on the login node as its own user, and every run belongs to one of the site's two
// users. It logs in as them over SSH, with certificates of the site's own signer. Each case has a run of both users; a
// fault of the first one's account, or of certificates for it, may not hold up the second one's run, which is called
// the twin.

// addUsers makes the two users of the site.
func (s *site) addUsers(ctx context.Context) error {
	for _, letter := range []string{"a", "b"} {
		name := fmt.Sprintf("chaos%s%d", letter, s.n)
		s.users = append(s.users, name)
		const script = `set -e
id -u "$1" >/dev/null 2>&1 || devd user "$1" add
devd user "$1" restore
chown root "${2%/of}" "${2%/*/of}"; chmod 1777 "${2%/of}" "${2%/*/of}"
install -d -m 0755 "$2"
rm -rf --one-file-system "$2/$1"
install -d -m 0700 -o "$1" -g "$(id -g "$1")" "$2/$1"`
		if _, err := s.output(ctx, "root", nil, "bash", "-c", script, "bash", name, s.shared+"/of"); err != nil {
			return err
		}
	}
	return nil
}

// dir returns the folder of a run.
func (s *site) dir(runID string) string {
	if owner, ok := s.owners.Load(runID); ok {
		return s.shared + "/of/" + owner.(string) + "/runs/" + runID
	}
	return s.runs() + "/" + runID
}

// who returns the user who calls the gateway: the trial's own user, or the gateway's.
func (t *trial) who() string {
	if t.owner != "" {
		return t.owner
	}
	return user
}

// importSeed imports the site's input. With run_as: caller that is one of its users, through a gateway that runs for that long.
func (s *site) importSeed(ctx context.Context, out any) error {
	args := []string{"artifact", "import", s.home + "/seed", "--type", "TEXT"}
	if s.carrier != caller {
		return s.cli(ctx, user, s.file, out, args...)
	}
	log, err := os.Create(filepath.Join(os.TempDir(), "slurmgate-chaos-"+s.name()+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	k := s.keep(ctx, log, nil)
	defer k.finish(false)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if up, _ := k.alive(); up {
			return s.cli(ctx, s.users[0], s.client, out, args...)
		}
	}
	return fmt.Errorf("the gateway of %s does not start; see %s", s.name(), log.Name())
}

// addTwin makes the twin: a plain run of the second user, under the same gateway.
func (t *trial) addTwin() error {
	if t.carrier != caller {
		return nil
	}
	t.owner = t.s.users[0]
	c := *t.testCase
	c.scenario, c.flags, c.far, c.group, c.takeover = scenarioNamed("plain"), nil, far{}, nil, false
	t.twin = &trial{testCase: &c, s: t.s, log: t.log, token: t.token + "-twin", owner: t.s.users[1],
		observedBefore: t.observedBefore, isTwin: true,
		over: make(chan struct{})}
	file, err := t.twin.identify()
	t.twin.file = file
	return err
}

// goAlong carries out the twin.
func (t *trial) goAlong(ctx context.Context) {
	defer close(t.over)
	t.submit(ctx, t.file)
	t.mu.Lock()
	t.answered = time.Now()
	t.mu.Unlock()
	t.follow(ctx)
	t.collect(ctx)
}

// drawCaller draws one of the faults of the users' logins, or none, and perhaps a job of the second user's with the
// name of the first one's.
func drawCaller(r source, group bool) (f far) {
	f = drawFar(r)
	if !group && r.chance(50) {
		f = far{lift: f.lift, after: r.between(0, 2*time.Second), hold: r.between(time.Second, 8*time.Second)}
		f.signer = signerFaults[r.IntN(len(signerFaults))]
	}
	f.namesake = r.chance(40)
	return f
}

// Faults of the signer, or of its answers about the first user.
const (
	signerKilled  = "killed"
	signerPaused  = "paused"
	signerRefuses = "refuses the user"
	signerShort   = "signs for seconds"
	userLocked    = "account locked" // which is the account's fault, not the signer's
)

var signerFaults = []string{signerKilled, signerPaused, signerRefuses, signerShort, userLocked}

// ofUserOnly reports whether a fault concerns only the first user.
func ofUserOnly(fault string) bool { return fault == signerRefuses || fault == userLocked }

// disturbSigner carries out the case's fault, and cuts the connections so that the next call logs in again. A fault of
// one user's lasts until the twin has ended: it may not wait for the other user.
func (t *trial) disturbSigner(ctx context.Context) {
	defer t.end()
	time.Sleep(t.far.after)
	a, apply, lift := t.s.signer, func() error { return nil }, func() error { return nil }
	switch t.far.signer {
	case signerKilled:
		apply, lift = func() error { return a.end() }, func() error { return a.start(ctx) }
	case signerPaused:
		apply, lift = func() error { return a.pause(true) }, func() error { return a.pause(false) }
	case signerRefuses:
		apply, lift = func() error { return a.again(ctx, t.owner) }, func() error { return a.again(ctx) }
	case signerShort:
		apply, lift = func() error { a.shorten(3 * time.Second); return nil }, func() error { a.shorten(0); return nil }
	case userLocked:
		apply = func() error { return t.s.devd(ctx, "user", t.owner, "lock") }
		lift = func() error {
			err := t.s.devd(ctx, "user", t.owner, "restore")
			t.keep.reload() // as an admin does: a login that sshd refused is not tried again for minutes
			return err
		}
	}
	a.disturb(t.far.signer != userLocked && t.far.signer != signerShort)
	if err := apply(); err != nil {
		t.find("broken", "%s: %v", t.far.signer, err)
	}
	t.s.wires.cutNow()
	if ofUserOnly(t.far.signer) {
		select {
		case <-t.twin.over:
		case <-time.After(2 * limit):
			t.find("stuck", "the run of %s waits for %s: %s", t.twin.owner, t.owner, t.far.signer)
		case <-ctx.Done():
		}
	} else {
		time.Sleep(t.far.hold)
	}
	a.disturb(false)
	if err := lift(); err != nil {
		t.find("broken", "%s: %v", t.far.signer, err)
	}
}

// userCodes are the codes of errors by which the gateway reports that it cannot log in as the user, or may not.
var userCodes = []string{"signer_away", "signer_busy", "user_refused", "login_refused", "no_unix_user", "unix_user_refused"}

// signerBit counts how often the case met its fault: requests for certificates, or lines of the log about a locked
// account.
func (t *trial) signerBit() (n int) {
	if t.far.signer != userLocked {
		return t.s.signer.met() - t.met0
	}
	if data, err := os.ReadFile(t.log.Name()); err == nil {
		for _, code := range userCodes {
			n += strings.Count(string(data), code)
		}
	}
	return n
}

// refusedUser reports whether an error is that of a user who cannot be logged in as at the moment.
func (t *trial) refusedUser(code string) bool {
	return t.far.signer != "" && slices.Contains(userCodes, code)
}

// pretend gives the second user a job under the name of the first one's, as soon as that name is known: before sbatch,
// or at the same time.
func (t *trial) pretend(ctx context.Context) {
	defer t.end()
	file := t.s.path(t.s.dir(t.runID) + "/a1/ctl/token")
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(3 * time.Millisecond) {
		token, err := os.ReadFile(file)
		if err != nil || len(strings.TrimSpace(string(token))) != 32 {
			continue
		}
		const line = `sbatch --parsable --job-name="$1" --account=research --partition=main --time=1 --output=/dev/null --wrap="sleep 3"`
		out, err := t.s.output(ctx, t.twin.owner, nil, "bash", "-c", line, "bash",
			run.JobName(t.runID, 1, strings.TrimSpace(string(token))))
		if err == nil {
			t.mu.Lock()
			t.strange = strings.TrimSpace(out)
			t.mu.Unlock()
		}
		fmt.Fprintf(t.log, "=== %s job of %s under the name: %q %v\n", time.Now().Format("15:04:05.000"), t.twin.owner, out, err)
		return
	}
}

// judgeNamesake: the other user's job of that name is neither taken for the run's nor touched.
func (t *trial) judgeNamesake(ctx context.Context, v run.View) error {
	if t.strange == "" {
		return nil
	}
	if v.Submission.JobID == t.strange {
		t.find("misattributed", "the ledger names job %s, which is %s's", t.strange, t.twin.owner)
	}
	if t.block >= 0 && t.outage.forgets {
		return nil // Slurm itself may cancel what it forgot
	}
	var state string
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		out, err := t.s.output(ctx, "root", nil, "sacct", "-X", "-n", "-P", "-a", "-j", t.strange, "-o", "State")
		if err != nil {
			return err
		}
		if state = strings.TrimSpace(out); state != "" && state != "PENDING" && state != "RUNNING" && state != "COMPLETING" {
			break
		}
	}
	if strings.HasPrefix(state, "CANCELLED") {
		t.find("misattributed", "job %s of %s was cancelled", t.strange, t.twin.owner)
	}
	return nil
}

// params returns the run's parameters, with the owner, who belongs to the run's identity.
func (t *trial) params(spec plan.Spec, script string) plan.Params {
	return plan.Params{ProjectID: plan.ProjectID("chaos"), Script: script, Spec: spec, ExecutedAs: t.owner}
}
