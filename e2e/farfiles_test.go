package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/apptainer"
	"slurmgate/remote"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/staging/sftp"
)

// farHosts logs in to the login node as lab, and to the data host.
func farHosts(t *testing.T) (login, dtn *remote.Host, info sshInfo) {
	t.Helper()
	info = sshOf(t)
	return hostAt(t, info.at(info.Login, "lab")), hostAt(t, info.at(info.DTN.server, "lab")), info
}

// Workspaces on a cluster that shares no filesystem with the gateway pass the suite of all workspaces, over a real
// sshd: with the files carried by the login node, by a data host that sees them under another path and has no Slurm, by
// SFTP without any command, and as the caller.
//
// proves SITE-01 SITE-02 SITE-08 CARD-03
func TestFarWorkspaces(t *testing.T) {
	t.Parallel()
	login, dtn, info := farHosts(t)
	pool := func(t *testing.T, h *remote.Host) *transfer.Pool {
		p := value(transfer.New(h, transfer.Config{Connections: 2}))(t)
		t.Cleanup(p.Close)
		return p
	}
	for name, config := range map[string]func(t *testing.T, dir string) sftp.Config{
		"login": func(t *testing.T, dir string) sftp.Config {
			return sftp.Config{RunsDir: dir, Shell: login, Data: login, Pool: pool(t, login)}
		},
		"dtn": func(t *testing.T, dir string) sftp.Config {
			return sftp.Config{RunsDir: dir, DataRunsDir: info.DTN.Shared + strings.TrimPrefix(dir, "/shared"), Shell: login, Data: dtn,
				Pool: pool(t, dtn)}
		},
		"SFTP alone": func(t *testing.T, dir string) sftp.Config {
			return sftp.Config{RunsDir: dir, Data: login, Pool: pool(t, login), SyncsFolders: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtest.Workspace(t, func(t *testing.T, f func(*testing.T)) { f(t) }, func(t *testing.T) *runtest.Files {
				dir := value(os.MkdirTemp(host(world.dir), "far-"))(t)
				must(t, os.Chown(dir, world.uid, world.uid))
				c := config(t, world.dir+"/"+filepath.Base(dir))
				c.GatewayID = "gw-1"
				return farFiles(t, dir, world.uid, c)
			})
		})
	}
	t.Run("caller", func(t *testing.T) {
		t.Parallel()
		alice, info := hostAt(t, userAt(t, "alice")), sshOf(t).Callers
		scratch, uid := info.Scratch+"/alice", info.Users["alice"].UID
		runtest.Workspace(t, func(t *testing.T, f func(*testing.T)) { f(t) }, func(t *testing.T) *runtest.Files {
			dir := value(os.MkdirTemp(host(scratch), "far-"))(t)
			t.Cleanup(func() { must(t, errors.Join(os.RemoveAll(dir), os.RemoveAll(dir+".secret"))) })
			must(t, os.Chown(dir, uid, uid))
			return farFiles(t, dir, uid, sftp.Config{RunsDir: scratch + "/" + filepath.Base(dir), GatewayID: "gw-1", Shell: alice, Data: alice,
				Pool: pool(t, alice)})
		})
	})
}

// farFiles returns the suite's arguments for a workspace whose folder is dir on this machine, and whose jobs have the
// uid.
func farFiles(t *testing.T, dir string, uid int, c sftp.Config) *runtest.Files {
	open := func(change func(*sftp.Config)) func(*testing.T) run.Workspace {
		return func(t *testing.T) run.Workspace {
			c := c
			if change != nil {
				change(&c)
			}
			w := value(sftp.New(t.Context(), c))(t)
			t.Cleanup(w.Close)
			return w
		}
	}
	// own gives the files below name to the user of the jobs, as if that user had created them.
	own := func(t *testing.T, name string) {
		must(t, filepath.WalkDir(filepath.Join(dir, name), func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, uid, uid)
		}))
	}
	secret := dir + ".secret" // a hard link needs the same filesystem
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	other := uid + 1
	return &runtest.Files{Workspace: open(nil)(t), HidesLinks: c.Shell == nil, Again: open(func(c *sftp.Config) { c.Marked = true }),
		Foreign: open(func(c *sftp.Config) { c.JobUID = &other }),
		Leave: func(t *testing.T, runID, path string, e runtest.Entry) {
			name := filepath.Join(dir, runID, path)
			must(t, os.MkdirAll(filepath.Dir(name), 0o700))
			must(t, os.RemoveAll(name))
			must(t, map[runtest.Entries]func() error{
				runtest.File:     func() error { return os.WriteFile(name, []byte(e.Data), 0o600) },
				runtest.Symlink:  func() error { return os.Symlink(secret, name) },
				runtest.Hardlink: func() error { return os.Link(secret, name) },
				runtest.Pipe:     func() error { return unix.Mkfifo(name, 0o600) },
				runtest.Folder:   func() error { return os.Mkdir(name, 0o700) },
			}[e.Kind]())
			own(t, runID)
		},
		Read: func(t *testing.T, runID, path string) (string, bool) {
			name := filepath.Join(dir, runID, path)
			if st, err := os.Lstat(name); err != nil || !st.Mode().IsRegular() {
				return "", false
			}
			data := value(os.ReadFile(name))(t)
			return string(data), true
		},
		Claim: func(t *testing.T, runID string, n int, mine string) string {
			ctl := filepath.Join(dir, runID, fmt.Sprintf("a%d", n), "ctl")
			file := filepath.Join(ctl, ".claim."+strings.ToLower(rand.Text()))
			must(t, os.WriteFile(file, []byte(mine), 0o600))
			must(t, os.Chown(file, uid, uid))
			_ = os.Link(file, filepath.Join(ctl, run.ClaimFile)) // the content decides, whatever link returns
			data := value(os.ReadFile(filepath.Join(ctl, run.ClaimFile)))(t)
			return string(data)
		}}
}

// Images on a cluster that shares no filesystem with the gateway pass the suite of all image stores, over a real sshd.
//
// proves SITE-01 SITE-02 CARD-03
func TestFarImages(t *testing.T) {
	t.Parallel()
	login, dtn, info := farHosts(t)
	pool := func(t *testing.T, h *remote.Host) *transfer.Pool {
		p := value(transfer.New(h, transfer.Config{Connections: 2}))(t)
		t.Cleanup(p.Close)
		return p
	}
	for name, folder := range map[string]func(dir string) *sftp.Folder{
		"login": func(dir string) *sftp.Folder { return sftp.NewFolder(login, dir, login, dir, pool(t, login)) },
		"dtn": func(dir string) *sftp.Folder {
			return sftp.NewFolder(login, dir, dtn, info.DTN.Shared+strings.TrimPrefix(dir, "/shared"), pool(t, dtn))
		},
		"SFTP alone": func(dir string) *sftp.Folder { return sftp.NewFolder(nil, "", login, dir, pool(t, login)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtest.Images(t, func(t *testing.T, f func(*testing.T)) { f(t) }, func(t *testing.T) *runtest.Store {
				above := value(os.MkdirTemp(host(world.dir), "images-"))(t)
				must(t, os.Chown(above, world.uid, world.uid))
				dir := world.dir + "/" + filepath.Base(above) + "/store" // does not exist yet
				place := folder(dir)
				t.Cleanup(place.Close)
				s, n := apptainer.NewFarStore(place, dir), 0
				rt := apptainer.NewRuntime(apptainer.Config{Binds: []apptainer.Bind{{Name: "refs", Source: "/shared/refs", Target: "/refs"}}})
				return &runtest.Store{Images: apptainer.FarImages{FarStore: s, Runtime: rt},
					Put: func(t *testing.T) string {
						n++
						img := value(s.Add(t.Context(), anImage(t, fmt.Sprint("image ", n))))(t)
						stored := value(s.List(t.Context()))(t)
						st, err := os.Stat(host(dir) + "/" + img.Digest + ".sif")
						if must(t, err); len(stored) != n || st.Mode() != 0o444 || int(st.Sys().(*syscall.Stat_t).Uid) != world.uid {
							t.Errorf("%d images listed of %d, the last %v", len(stored), n, st.Mode())
						}
						return img.Digest
					},
					Damage: func(t *testing.T, digest string) {
						name := host(dir) + "/" + digest + ".sif"
						data := value(os.ReadFile(name))(t)
						data[len(data)-1] ^= 1
						must(t, os.WriteFile(name, data, 0o444))
						must(t, os.Chtimes(name, time.Time{}, time.Now().Add(time.Hour))) // all that SFTP shows of a change
					}}
			})
		})
	}
}

// anImage makes a SIF file with a file of this content.
func anImage(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "root"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "root", "file"), []byte(content), 0o644))
	squashfs, image := filepath.Join(dir, "squashfs"), filepath.Join(dir, "image.sif")
	for _, c := range [][]string{{"mksquashfs", filepath.Join(dir, "root"), squashfs, "-quiet", "-no-progress", "-all-root", "-no-xattrs"},
		{host(world.dir) + "/mksif", "-arch", runtime.GOARCH, "-o", image, squashfs}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c[0], err, out)
		}
	}
	return image
}
