package remote

import (
	"log/slog"
	"testing"
	"time"

	"slurmgate/remote/sshtest"
)

// serve starts a server and returns the configuration to reach it.
func serve(t *testing.T, profile string) (*sshtest.Server, Config) {
	s := sshtest.Serve(t, profile)
	return s, Config{Address: s.Address, User: "lab", KnownHosts: []string{s.Known}, Key: s.Key}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open returns a Host with short back-offs. All other times are long enough for a busy machine.
func open(t *testing.T, c Config) *Host {
	t.Helper()
	h, err := New(c, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(h.Close)
	h.timing = timing{first: 20 * time.Millisecond, longest: 200 * time.Millisecond, patience: time.Minute, alive: time.Minute,
		hello: time.Minute, busy: 20 * time.Second, session: 2 * time.Minute}
	return h
}
