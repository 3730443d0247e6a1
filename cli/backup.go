package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"slurmgate/app"
	"slurmgate/backup"
	"slurmgate/fault"
	"slurmgate/site"
)

// Backup is the verb that backs up a gateway.
type Backup struct{ app.BackupArgs }

// Run makes a backup. A site whose record cannot be written is backed up too: that is when a backup is needed most.
func (c Backup) Run(ctx context.Context, a *Shell) error {
	p := bar{shell: a, what: "artifacts"}
	a.Host.Backup = func(ctx context.Context, args app.BackupArgs) (backup.Made, error) {
		return a.Ports.Backup(ctx, args, p.show)
	}
	c.Site = a.Site
	tool := operation(a.Host, "gateway.backup").Tool()
	s, err := site.Load(a.Site)
	if err != nil {
		return err
	}
	var m backup.Made
	g, who, err := a.SiteGate(ctx, a, s, tool)
	if err != nil {
		a.Say("this backup is not recorded: %v", err)
		err = alone(ctx, tool, c.BackupArgs, &m)
	} else {
		defer g.Close()
		err = through(ctx, g, who, tool, c.BackupArgs, &m)
	}
	p.end()
	if err != nil {
		return err
	}
	err = a.show(m, func(w io.Writer) {
		fmt.Fprintf(w, "%s\nledger     %s, schema %d, %d runs\nartifacts  %d (%s), %d of them copied now (%s)\n", m.Folder,
			bytesText(m.Ledger.Bytes), m.Schema, total(m.Runs), m.Objects, bytesText(m.Bytes), m.Copied, bytesText(m.Fresh))
		for _, name := range m.Removed {
			fmt.Fprintf(w, "removed    %s\n", name)
		}
		for _, sum := range m.Damaged {
			fmt.Fprintf(w, "damaged    sha256:%s is missing or damaged in the artifact store, so the backup does not have it\n", sum)
		}
		if more := m.DamagedCount - len(m.Damaged); more > 0 {
			fmt.Fprintf(w, "damaged    %d more; %s lists all %d\n", more, filepath.Join(m.Folder, "manifest.json"), m.DamagedCount)
		}
		if m.DamagedCount > 0 {
			printNext(w, fault.Do("artifact.verify", "all", true))
		}
	})
	if err == nil && m.DamagedCount > 0 {
		return quietFailure{fault.Tool}
	}
	return err
}

func total(runs map[string]int64) (n int64) {
	for _, k := range runs {
		n += k
	}
	return n
}

// Restore is the verb that puts a backup back.
type Restore struct {
	Dir     string `arg:"" help:"Folder of backups, of which the newest is restored, or one of them." type:"path"`
	Partial bool   `help:"Restore although artifacts of the backup are missing or damaged."`
	Owner   string `help:"User who owns what is restored. Default: the owner of gateway.state_dir." placeholder:"USER"`
}

// Run restores a backup.
func (c Restore) Run(ctx context.Context, a *Shell) error {
	p := bar{shell: a, what: "artifacts"}
	a.Host.Restore = func(ctx context.Context, args app.RestoreArgs) (app.RestoreAnswer, error) {
		return a.Ports.Restore(ctx, args, p.show)
	}
	args := app.RestoreArgs{Site: a.Site, Dir: c.Dir, Partial: c.Partial, Owner: c.Owner}
	var r app.RestoreAnswer
	err := alone(ctx, operation(a.Host, "gateway.restore").Tool(), args, &r)
	p.end()
	if err != nil {
		return err
	}
	return a.show(r, func(w io.Writer) {
		fmt.Fprintf(w, "restored   %s of %s, made on %s by slurmgate %s\nruns       %d\nartifacts  %d, %d of them copied\nowner      %s\n",
			r.Folder, dateTime(r.Manifest.CreatedAt), r.Manifest.Host, r.Manifest.Version, total(r.Manifest.Runs), r.Objects, r.Copied, r.Owner)
		for _, sum := range r.Missing {
			fmt.Fprintf(w, "missing    sha256:%s\n", sum)
		}
		if r.MissingCount > 0 {
			fmt.Fprintf(w, "missing    %d in all; %s lists them\n", r.MissingCount, r.MissingFile)
		}
		for i, what := range r.Advice {
			fmt.Fprintf(w, "%d. %s\n", i+1, what)
		}
		printNext(w, r.NextSteps...)
	})
}

// bar shows on a terminal how far something is, about four times a second.
type bar struct {
	shell *Shell
	what  string
	last  time.Time
	shown bool
}

func (b *bar) show(done, of, bytes int64) {
	b.print(fmt.Sprintf("%d of %d %s, %s", done, of, b.what, bytesText(bytes)))
}

func (b *bar) bytes(done, of int64) { b.print(bytesText(done) + " of " + bytesText(of)) }

func (b *bar) print(text string) {
	if !b.shell.tty || b.shell.JSON || time.Since(b.last) < 250*time.Millisecond {
		return
	}
	b.last, b.shown = time.Now(), true
	fmt.Fprintf(b.shell.Err, "\r%s\x1b[K", text)
}

func (b *bar) end() {
	if b.shown {
		fmt.Fprint(b.shell.Err, "\r\x1b[K")
		b.shown = false
	}
}
