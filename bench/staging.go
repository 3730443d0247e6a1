package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"slurmgate/remote"
	"slurmgate/remote/transfer"
)

// staging measures transfers compared with OpenSSH's scp and sftp, on the login node of a separate cluster: both
// clients and the server on one host, so that nothing but the programs and the round-trip time counts.
func (o options) staging(ctx context.Context) error {
	h, err := o.up(ctx)
	if err != nil {
		return err
	}
	defer h.down()
	if _, err := h.output(ctx, h.script, "--name", h.name, "up", "--ssh"); err != nil {
		return err
	}
	out, err := h.output(ctx, h.script, "--name", h.name, "ssh-info")
	if err != nil {
		return err
	}
	var raw struct {
		Login      struct{ Address string } `json:"login"`
		Key        string                   `json:"key"`
		KnownHosts string                   `json:"known_hosts"`
	}
	if err := json.Unmarshal(out, &raw); err != nil {
		return err
	}
	inside := filepath.Join(h.share, "bench")
	if _, err := h.output(ctx, "install", "-m", "600", raw.Key, inside+"/key"); err != nil {
		return err
	}
	if _, err := h.asRoot(ctx, "chown", "-R", user+":", sharedDir); err != nil {
		return err
	}
	known, err := os.ReadFile(raw.KnownHosts)
	if err != nil {
		return err
	}
	var lines strings.Builder // for the host under any address
	for line := range strings.Lines(string(known)) {
		if names, key, _ := strings.Cut(line, " "); strings.Contains(","+names+",", ","+raw.Login.Address+",") {
			lines.WriteString("* " + key)
		}
	}
	if err := os.WriteFile(inside+"/known_hosts", []byte(lines.String()), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(inside+"/login", []byte(raw.Login.Address+":22"), 0o644); err != nil {
		return err
	}
	return h.inside(ctx, "staging")
}

// wire is a way to the login node.
type wire struct {
	m    *measurement
	addr string
	rtt  time.Duration
	host *remote.Host
	pool *transfer.Pool
}

// reach opens a way with a number of connections.
func (m *measurement) reach(addr string, rtt time.Duration, connections int) (*wire, error) {
	host, err := remote.New(remote.Config{Address: addr, User: user, KnownHosts: []string{m.at("known_hosts")}, Key: m.at("key")},
		slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	p, err := transfer.New(host, transfer.Config{Connections: connections})
	return &wire{m: m, addr: addr, rtt: rtt, host: host, pool: p}, err
}

func (w *wire) close() {
	w.pool.Close()
	w.host.Close()
}

func (m *measurement) at(name string) string { return filepath.Join(sharedDir, name) }

// openssh runs scp or sftp as a user does, without a password.
func (w *wire) openssh(ctx context.Context, stdin string, args ...string) error {
	_, port, err := net.SplitHostPort(w.addr)
	if err != nil {
		return err
	}
	options := []string{"-q", "-P", port, "-i", w.m.at("key"), "-o", "UserKnownHostsFile=" + w.m.at("known_hosts"), "-o", "BatchMode=yes",
		"-o", "IdentitiesOnly=yes", "-o", "CheckHostIP=no"}
	cmd := exec.CommandContext(ctx, args[0], append(options, args[1:]...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, said.Bytes())
	}
	return nil
}

func (w *wire) far(name string) string {
	host, _, _ := net.SplitHostPort(w.addr) // was split before
	return user + "@" + host + ":" + name
}

func (m *measurement) staging(ctx context.Context) error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return err
	}
	data, err := os.ReadFile(m.at("login"))
	if err != nil {
		return err
	}
	login := string(data)
	late, stop, err := delayed(login, 20*time.Millisecond)
	if err != nil {
		return err
	}
	defer stop()
	for _, part := range []func() error{
		func() error { return m.localCopy(ctx) },
		func() error { return m.transferMemory(ctx, login) },
		func() error { return m.large(ctx, login, 0, m.sizes.LargeMB, ">=1.2") },
		func() error { return m.large(ctx, late, 20*time.Millisecond, m.sizes.LargeMB/2, ">=3") },
		func() error { return m.smallFiles(ctx, late, 20*time.Millisecond) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// random makes a file of bytes that do not compress.
func (m *measurement) random(ctx context.Context, name string, bytes int64) (string, error) {
	path := filepath.Join(m.dir, name)
	cmd := exec.CommandContext(ctx, "dd", "if=/dev/urandom", "of="+path, "bs=1M", "iflag=count_bytes", fmt.Sprint("count=", bytes),
		"status=none")
	return path, cmd.Run()
}

// contest times several ways to do the same in turns, and returns the median of each. The first round warms up.
func (m *measurement) contest(names []string, ways map[string]func() error) (map[string]time.Duration, error) {
	took := map[string][]time.Duration{}
	for round := range m.sizes.Rounds + 1 {
		for _, name := range names {
			t, err := timed(ways[name])
			if err != nil {
				return nil, err
			}
			if round > 0 {
				took[name] = append(took[name], t)
			}
		}
	}
	out := map[string]time.Duration{}
	for name, t := range took {
		out[name] = median(t)
	}
	return out, nil
}

// large transfers one file in both directions.
func (m *measurement) large(ctx context.Context, addr string, rtt time.Duration, mb int, target string) error {
	src, err := m.random(ctx, "large", int64(mb)<<20)
	if err != nil {
		return err
	}
	params := []string{fmt.Sprint("rtt_ms=", rtt.Milliseconds()), fmt.Sprint("mb=", mb), fmt.Sprint("rounds=", m.sizes.Rounds)}
	f := transfer.File{Path: filepath.Join(m.dir, "put"), Size: int64(mb) << 20}
	var ours []string
	ways := map[string]func() error{}
	w := &wire{}
	for _, n := range m.sizes.Lanes {
		name := fmt.Sprint("connections_", n)
		if w, err = m.reach(addr, rtt, n); err != nil {
			return err
		}
		defer w.close()
		ours = append(ours, name)
		ways["put_"+name] = func() error { return putFile(ctx, w.pool, f, src) }
		ways["get_"+name] = func() error { return getFile(ctx, w.pool, f, filepath.Join(m.dir, "got")) }
	}
	ways["put_scp"] = func() error { return w.openssh(ctx, "", "scp", src, w.far(f.Path)) }
	ways["get_scp"] = func() error { return w.openssh(ctx, "", "scp", w.far(f.Path), filepath.Join(m.dir, "got")) }
	ways["put_sftp"] = func() error { return w.openssh(ctx, "put "+src+" "+f.Path+"\n", "sftp", "-b", "-", w.far("")) }
	ways["get_sftp"] = func() error {
		return w.openssh(ctx, "get "+f.Path+" "+filepath.Join(m.dir, "got")+"\n", "sftp", "-b", "-", w.far(""))
	}
	for _, direction := range []string{"put", "get"} {
		var names []string
		for _, n := range append([]string{"scp", "sftp"}, ours...) {
			names = append(names, direction+"_"+n)
		}
		took, err := m.contest(names, ways)
		if err != nil {
			return err
		}
		for _, n := range names {
			m.print("large_"+n, float64(f.Size)/1e6/took[n].Seconds(), "MB/s", "", params...)
		}
		best := ours[len(ours)-1]
		for _, n := range ours {
			m.print("large_"+direction+"_to_sftp", ratioOf(took, direction+"_sftp", direction+"_"+n), "ratio", "", append(params, n)...)
			if took[direction+"_"+n] < took[direction+"_"+best] {
				best = n
			}
		}
		m.print("large_"+direction+"_to_scp", ratioOf(took, direction+"_scp", direction+"_"+best), "ratio", target, append(params, best)...)
	}
	return nil
}

func ratioOf(took map[string]time.Duration, theirs, ours string) float64 {
	return float64(took[theirs]) / float64(took[ours])
}

func putFile(ctx context.Context, p *transfer.Pool, f transfer.File, src string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = p.Put(ctx, f, in)
	return err
}

func getFile(ctx context.Context, p *transfer.Pool, f transfer.File, dst string) error {
	out, err := os.Create(dst)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = p.Get(ctx, f, 0, nil, out)
	return err
}

const (
	fewKB     = 4
	manyFiles = 200
)

// smallFiles puts many small files: over a connection that is made for them, as scp does, and over the one that a gateway keeps.
func (m *measurement) smallFiles(ctx context.Context, addr string, rtt time.Duration) error {
	from, to := filepath.Join(m.dir, "many"), filepath.Join(m.dir, "many-put")
	for _, d := range []string{from, to} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	for i := range manyFiles {
		if _, err := m.random(ctx, fmt.Sprint("many/", i), fewKB<<10); err != nil {
			return err
		}
	}
	var files iter.Seq2[transfer.File, func() (io.ReaderAt, error)] = func(yield func(transfer.File, func() (io.ReaderAt, error)) bool) {
		for i := range manyFiles {
			open := func() (io.ReaderAt, error) { return os.Open(filepath.Join(from, fmt.Sprint(i))) }
			if !yield(transfer.File{Path: filepath.Join(to, fmt.Sprint(i)), Size: fewKB << 10, Mode: 0o400}, open) {
				return
			}
		}
	}
	kept, err := m.reach(addr, rtt, 4)
	if err != nil {
		return err
	}
	defer kept.close()
	took, err := m.contest([]string{"scp", "new", "kept"}, map[string]func() error{
		"scp": func() error { return kept.openssh(ctx, "", "scp", "-r", from, kept.far(to)) },
		"new": func() error {
			w, err := m.reach(addr, rtt, 4)
			if err != nil {
				return err
			}
			defer w.close()
			return w.pool.PutMany(ctx, files)
		},
		"kept": func() error { return kept.pool.PutMany(ctx, files) },
	})
	if err != nil {
		return err
	}
	params := []string{fmt.Sprint("rtt_ms=", rtt.Milliseconds()), fmt.Sprint("files=", manyFiles), fmt.Sprint("kb=", fewKB),
		fmt.Sprint("rounds=", m.sizes.Rounds)}
	for _, n := range []string{"scp", "new", "kept"} {
		m.print("small_files_"+n, took[n].Seconds(), "s", "", params...)
	}
	m.print("small_files_new_to_scp", ratioOf(took, "scp", "new"), "ratio", ">=10", params...)
	m.print("small_files_kept_to_scp", ratioOf(took, "scp", "kept"), "ratio", ">=10", params...)
	return nil
}
