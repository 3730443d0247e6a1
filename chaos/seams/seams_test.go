package seams

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"slurmgate/fault"
	"slurmgate/run"
)

// site counts the calls it gets.
type site struct {
	run.Submitter
	run.Canceller
	run.Workspace
	run.Store
	sends, cancels int
}

func (s *site) Send(context.Context, run.JobSpec, int) run.SendResult {
	s.sends++
	return run.SendResult{Outcome: run.SendAccepted, JobID: "7"}
}

func (s *site) Cancel(context.Context, string, string, string) error { s.cancels++; return nil }

func (s *site) Apply(context.Context, run.Write) (run.View, error) {
	return run.View{Sends: 1}, nil
}

func (s *site) ReadControlFrom(_ context.Context, _ string, _ int, name string, _, _ int64) (run.Part, error) {
	return run.Part{Data: []byte(name)}, nil
}

func wrapped(s *site) run.Parts {
	return FromEnvironment()(run.Parts{Store: s, Submitter: s, Canceller: s, Workspace: s})
}

// Seams are named after the port, and what the call is about; without a trigger every call has the effect and the answer it had.
func TestSeamsPassed(t *testing.T) {
	list := filepath.Join(t.TempDir(), "seams")
	t.Setenv("SLURMGATE_CHAOS_LIST", list)
	s := &site{}
	p := wrapped(s)
	if res := p.Submitter.Send(t.Context(), run.JobSpec{}, 1); res.JobID != "7" {
		t.Errorf("Send returned %+v, want job 7", res)
	}
	if v, err := p.Store.Apply(t.Context(), run.Write{Event: run.Event{Type: "run.intent"}}); err != nil || v.Sends != 1 {
		t.Errorf("Apply returned %+v, %v, want one send", v, err)
	}
	if data, err := run.ReadControl(t.Context(), p.Workspace, "r", 1, "exit", 10, false); err != nil || string(data) != "exit" {
		t.Errorf("ReadControl returned %q (%v), want exit", data, err)
	}
	got, err := os.ReadFile(list)
	want := "Submitter.Send.before Submitter.Send.after Store.Apply.run.intent.before Store.Apply.run.intent.after " +
		"Workspace.ReadControl.exit.before Workspace.ReadControl.exit.after"
	if err != nil || strings.Join(strings.Fields(string(got)), " ") != want {
		t.Errorf("passed the seams %q (%v), want %s", got, err, want)
	}
}

// A failing call has its effect once; its caller does not learn of it.
func TestFailsAfterTheEffect(t *testing.T) {
	t.Setenv("SLURMGATE_CHAOS_FAIL", "Canceller.Cancel#2")
	s := &site{}
	p := wrapped(s)
	var errs []error
	for range 3 {
		errs = append(errs, p.Canceller.Cancel(t.Context(), "1", "n", ""))
	}
	if s.cancels != 3 || errs[0] != nil || !fault.Is(errs[1], fault.Transport) || errs[2] != nil {
		t.Errorf("%d cancels, %v", s.cancels, errs)
	}
	t.Setenv("SLURMGATE_CHAOS_FAIL", "Submitter.Send")
	if res := wrapped(s).Submitter.Send(t.Context(), run.JobSpec{}, 1); s.sends != 1 || res.Outcome != run.SendDoubt || res.JobID != "" {
		t.Errorf("%d sends, %+v", s.sends, res)
	}
}

// The process dies at the seam: before the effect, or after it.
func TestKill(t *testing.T) {
	if out := os.Getenv("SEAMS_TEST_OUT"); out != "" {
		s := &site{}
		p := wrapped(s)
		for range 2 {
			p.Submitter.Send(t.Context(), run.JobSpec{}, 1)
			if err := os.WriteFile(out, []byte(strings.Repeat("x", s.sends)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Fatal("it should be dead")
	}
	for kill, done := range map[string]int{"Submitter.Send.before": 0, "Submitter.Send.after#2": 1} {
		out := filepath.Join(t.TempDir(), "sends")
		cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), "SEAMS_TEST_OUT="+out, "SLURMGATE_CHAOS_KILL="+kill)
		err := cmd.Run()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("%s: %v", kill, err)
		}
		if got, _ := os.ReadFile(out); len(got) != done {
			t.Errorf("%s: %d sends were recorded, want %d", kill, len(got), done)
		}
	}
}
