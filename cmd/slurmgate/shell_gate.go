package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"slurmgate/access"
	"slurmgate/app"
	"slurmgate/cli"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// image and doctor work on a site's files in the shell's own process: there may be no gateway yet, or none that starts.
// They pass a gate of that process, under the site's policy, and leave a record in the site's ledger: through the
// gateway where one runs, else by opening the ledger under its lock. A call whose effect cannot be recorded is not
// carried out.

// siteGate makes a gate with the site's policy and its record, which was tried. The caller closes it.
func siteGate(ctx context.Context, a *cli.Shell, s *site.Site, t gate.Tool) (*gate.Gate, gate.Caller, error) {
	var who gate.Caller
	_, p, err := app.ReadDomain(s.DomainDir, toolpack.AllowMissingImages)
	if err != nil {
		return nil, who, err
	}
	if who.Principal, err = access.New(access.Config{}).Peer(os.Geteuid()); err != nil {
		return nil, who, err
	}
	who.Transport, who.Face, who.Address = gate.Local, gate.FaceShell, gate.Here()
	j := siteJournal{a, s, toChange}
	if t.SideEffect == gate.Read || t.ID == "gateway.backup" { // there is nothing to back up where there is no ledger
		j.start = toLook
	}
	if err := j.Record(ctx, nil); err != nil {
		return nil, who, fault.Wrap("", "not_recordable", t.ID+" cannot be recorded, so it was not called", err)
	}
	g, err := app.NewGate(gate.Config{Policy: app.Rules(p), Journal: j, Secrets: app.Scanner(j.site), Words: words(), Log: a.Log}, t)
	return g, who, err
}

// siteJournal writes records into the ledger of a site.
type siteJournal struct {
	shell *cli.Shell
	site  *site.Site
	start start
}

// Record implements gate.Journal. Without records it finds out whether they could be written.
func (j siteJournal) Record(ctx context.Context, records []gate.Record) error {
	for {
		c, err := j.shell.Reach(ctx, j.site.Gateway.Socket, func() error { return j.recordAlone(ctx, records, os.Geteuid()) })
		if c == nil || err != nil {
			return err
		}
		if err = j.send(ctx, c, records); !cli.Gone(err) || ctx.Err() != nil {
			return err
		}
	}
}

// send makes the gateway write the records, as those of the user at this end of its socket.
func (j siteJournal) send(ctx context.Context, c *httpapi.Client, records []gate.Record) error {
	if len(records) == 0 {
		records = []gate.Record{{}} // the gateway checks whether this user may record, and records nothing
	}
	for _, r := range records {
		args := app.ShellRecord{Chain: r.Chain, Event: r.Event}
		for _, p := range r.Payloads {
			args.Payloads = append(args.Payloads, app.ShellPayload{Kind: p.Kind, Payload: p.JSON})
		}
		raw, err := json.Marshal(args)
		if err == nil && len(raw) > gate.MaxInline { // the event has their hashes
			args.Payloads = nil
			if args.Event, err = gate.WithoutPayloads(r.Event); err == nil {
				raw, err = json.Marshal(args)
			}
		}
		if err != nil {
			return err
		}
		req := gate.NewRequest("event.record", app.BuiltinVersion, raw)
		if r.ToolCallID != "" {
			req.IdempotencyKey = &r.ToolCallID
		}
		res, err := c.Call(ctx, req)
		if err == nil && res.Error != nil {
			err = res.Error.Fault()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// recordAlone writes the records of a user's calls while no gateway runs. root does it as the owner of the ledger, whose files would
// otherwise become root's.
func (j siteJournal) recordAlone(ctx context.Context, records []gate.Record, uid int) error {
	if st, err := os.Stat(j.site.Gateway.StateDir); err == nil && os.Geteuid() == 0 {
		if owner := st.Sys().(*syscall.Stat_t); owner.Uid != 0 {
			return j.asOwner(ctx, owner.Uid, owner.Gid, records)
		}
	}
	lock, err := lockState(ctx, j.site, j.start)
	if err != nil {
		return err
	}
	defer lock.Release()
	l, err := openLedger(ctx, j.site, j.start)
	if err != nil {
		return err
	}
	defer l.Close()
	if len(records) > 0 {
		peer, err := access.PeerIdentity(ctx, uid)
		if err != nil {
			return err
		}
		who, err := l.Principals(ctx, peer)
		if err != nil {
			return err
		}
		for i := range records {
			records[i].PrincipalID = who[0].ID
		}
	}
	return l.Record(ctx, records)
}

// asOwner writes the records by a process of the ledger's owner.
func (j siteJournal) asOwner(ctx context.Context, uid, gid uint32, records []gate.Record) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	in, err := json.Marshal(records)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "record-calls", "--site", j.shell.Site, "--uid", strconv.Itoa(os.Geteuid()))
	cmd.Dir, cmd.Env, cmd.Stdin = "/", []string{}, bytes.NewReader(in)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fault.Wrap(fault.Transport, "not_recorded",
			fmt.Sprintf("uid %d, who owns gateway.state_dir, cannot write the record: %s", uid, strings.TrimSpace(string(out))), err)
	}
	return nil
}

type recordCallsCmd struct {
	UID int `name:"uid" required:"" help:"User id of who made the calls."`
}

// Run writes the records on standard input as the ledger's owner; root's shell starts it.
func (c recordCallsCmd) Run(ctx context.Context, a *cli.Shell) error {
	s, err := site.Load(a.Site)
	if err != nil {
		return err
	}
	var records []gate.Record
	if err := json.NewDecoder(cli.StandardInput(ctx)).Decode(&records); err != nil {
		return fault.Wrap(fault.Validation, "usage", "standard input has no records", err)
	}
	return siteJournal{a, s, toChange}.recordAlone(ctx, records, c.UID)
}
