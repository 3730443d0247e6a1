package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"slurmgate/app"
	"slurmgate/artifact"
	"slurmgate/cli"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/nss"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/transport"
)

// doctorConfig returns what the checks use of the rest of the program.
func doctorConfig() doctor.Config { return doctorOver(transport.QuietHosts()) }

func doctorOver(h *transport.Hosts) doctor.Config {
	return doctor.Config{Version: built().Version, LoadSite: loadSite, Images: transport.Images{},
		NodeFaults: nodeFaults, AbsenceGap: absenceGap, OpenBooks: openBooks, MemoryLimit: memoryLimit, Reach: h.Ways, Close: h.Close,
		MayStart: func(ctx context.Context, s *site.Site) error { return mayCreate(ctx, s, toChange) },
		As:       asUser}
}

// examination is the standard input of a process that makes the checks as the service's user.
type examination struct {
	Args       app.DoctorArgs
	Unrecorded string
	Early      bool // only the checks of start-up
}

// examine makes the checks with the rights of the service's user: what root can write to proves nothing about the
// service.
func examine(ctx context.Context, args app.DoctorArgs, unrecorded error, say func(string, ...any)) app.DoctorAnswer {
	e := examination{Args: args}
	if unrecorded != nil {
		e.Unrecorded = unrecorded.Error()
	}
	if r, done := asServiceUser(ctx, args.Site, e); done {
		return r
	}
	return doctorConfig().Examine(ctx, args, unrecorded, say)
}

// early makes the checks of start-up, for config check.
func early(ctx context.Context, s *site.Site) []app.Finding {
	if r, done := asServiceUser(ctx, s.File(), examination{Args: app.DoctorArgs{Site: s.File()}, Early: true}); done {
		return r.Findings
	}
	return doctorConfig().Early(ctx, s)
}

// logChecks logs what start-up's checks find wrong with the site that is served. They ask Slurm nothing.
func logChecks(ctx context.Context, log *slog.Logger, s *site.Site) {
	count := map[app.CheckStatus]int{}
	for _, f := range doctorConfig().Early(ctx, s) {
		level := slog.LevelWarn
		switch f.Status {
		case app.CheckOK:
			continue
		case app.CheckFault:
			level = slog.LevelError
		}
		count[f.Status]++
		args := []any{"check", f.Code, "next", f.Remedy}
		if f.Site != "" {
			args = append(args, "site", f.Site)
		}
		log.Log(ctx, level, f.Found, args...)
	}
	log.Info("the site was checked", "faults", count[app.CheckFault], "warnings", count[app.CheckWarning],
		"unknown", count[app.CheckUnknown])
}

// asServiceUser makes the checks in a process of the service's user, if this process is root's and the service's user
// is another.
func asServiceUser(ctx context.Context, file string, e examination) (r app.DoctorAnswer, done bool) {
	if os.Geteuid() != 0 {
		return r, false
	}
	s, err := loadSite(file)
	if err != nil {
		return r, false // the checks report it
	}
	uid, how := doctor.ServiceUser(ctx, s)
	if uid == 0 {
		return r, false
	}
	name := fmt.Sprint(uid)
	u, err := (nss.Host{}).UserOf(ctx, uid)
	if err == nil {
		name = u.Name
		r, err = lookAs(ctx, u, e)
	}
	if err != nil {
		return doctor.CannotLookAs(s, name, how, err), true
	}
	return r, true
}

func lookAs(ctx context.Context, u nss.User, e examination) (r app.DoctorAnswer, err error) {
	cred, err := credential(ctx, u)
	if err != nil {
		return r, err
	}
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	in, err := json.Marshal(e)
	if err != nil {
		return r, err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "look", "--site", e.Args.Site)
	cmd.Dir, cmd.Stdin, cmd.Stdout = "/", bytes.NewReader(in), &out
	cmd.Stderr = io.MultiWriter(os.Stderr, &errs)
	cmd.Env = append(os.Environ(), "HOME=/", "USER="+u.Name, "LOGNAME="+u.Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that it cancels its probe jobs
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return r, json.Unmarshal(out.Bytes(), &r)
}

func credential(ctx context.Context, u nss.User) (*syscall.Credential, error) {
	ids, err := (nss.Host{}).GroupsOf(ctx, u.Name)
	if err != nil {
		return nil, err
	}
	c := &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	for _, id := range ids {
		c.Groups = append(c.Groups, uint32(id))
	}
	return c, nil
}

type lookCmd struct{}

// Run makes the checks as the service's user, for root's doctor and config check.
func (lookCmd) Run(ctx context.Context, a *cli.Shell) error {
	var e examination
	if err := json.NewDecoder(cli.StandardInput(ctx)).Decode(&e); err != nil {
		return fault.Wrap(fault.Validation, "usage", "standard input has no examination", err)
	}
	var r app.DoctorAnswer
	if e.Early {
		if s, err := loadSite(e.Args.Site); err == nil {
			r.Findings = doctorConfig().Early(ctx, s)
		} else {
			r = doctorConfig().Examine(ctx, e.Args, nil, a.Say) // it reports that this user cannot read the site file
		}
	} else {
		var unrecorded error
		if e.Unrecorded != "" {
			unrecorded = errors.New(e.Unrecorded)
		}
		r = doctorConfig().Examine(ctx, e.Args, unrecorded, a.Say)
	}
	return json.NewEncoder(a.Out).Encode(r)
}

// books is a ledger and a store that doctor reads.
type books struct {
	*ledger.Ledger
	store *artifact.Store // nil: it cannot be opened
}

func openBooks(ctx context.Context, s *site.Site) (doctor.Books, error) {
	l, err := ledger.OpenToRead(ctx, ledgerFile(s))
	if fault.KindOf(err) == fault.NotFound {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	store, err := artifact.OpenToRead(s.Gateway.ArtifactDir)
	if err != nil {
		store = nil // then it has nothing
	}
	return books{l, store}, nil
}

// Close implements doctor.Books.
func (b books) Close() error {
	err := b.Ledger.Close()
	if b.store != nil {
		err = errors.Join(err, b.store.Close())
	}
	return err
}

// Staged implements doctor.Books. The gateway's own host uses the folder of the first cluster.
func (b books) Staged(ctx context.Context, cluster string) ([]string, error) {
	waiting, err := b.Index(cluster).Waiting(ctx, "", 1000, run.Submitting, run.Unconfirmed, run.Pending, run.InJob, run.Completing,
		run.Collecting)
	var ids []string
	for _, w := range waiting {
		ids = append(ids, w.RunID)
	}
	return ids, err
}

// Knows implements doctor.Books.
func (b books) Knows(ctx context.Context, runID string) (bool, error) {
	_, err := b.View(ctx, runID)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	return err == nil, err
}

// Lost implements doctor.Books.
func (b books) Lost(ctx context.Context) (lost, of int, err error) {
	page, err := b.Artifacts(ctx, ledger.ArtifactFilter{})
	for _, a := range page.Artifacts {
		if b.store != nil && b.store.Has(a.SHA256) {
			continue
		}
		if _, inLedger := b.Payload(ctx, a.SHA256); inLedger != nil {
			lost++
		}
	}
	return lost, len(page.Artifacts), err
}

// Expiring implements doctor.Books. It leaves out tokens that were made for a short time.
func (b books) Expiring(ctx context.Context, after, before time.Time) (names []string, err error) {
	tokens, _, err := b.Tokens(ctx)
	for _, t := range tokens {
		if t.RevokedAt == nil && t.ExpiresAt.Sub(t.CreatedAt) > 2*before.Sub(after) && t.ExpiresAt.After(after) && t.ExpiresAt.Before(before) {
			names = append(names, t.Name)
		}
	}
	return names, err
}
