package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"slurmgate/plan"
	"slurmgate/remote/sshtest"
	"slurmgate/site"
)

// Images and workspaces of a site share the connections of storage.sftp: while both carry files that could use all of them, there are no
// more than its bound.
//
// proves SITE-05
func TestImagesAndWorkspacesShareConnections(t *testing.T) {
	const connections, size = 3, 32 << 20
	server := sshtest.Serve(t, "")
	host, port, err := net.SplitHostPort(server.Address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	runs, images := filepath.Join(t.TempDir(), "runs"), filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(runs, 0o700); err != nil {
		t.Fatal(err)
	}
	ssh := site.SSH{Endpoint: site.Endpoint{Host: host, Port: number, User: "u", KnownHosts: []string{server.Known}, Key: server.Key}}
	s := &site.Site{Name: "far"}
	s.Slurm.Transport, s.Slurm.SSH = site.TransportSSH, &ssh
	s.Storage.Transport, s.Storage.RunsDir, s.Storage.ImageStore = site.TransportSFTP, runs, images
	s.Storage.SFTP = &site.SFTP{SSH: ssh, RunsDir: runs, ImageStore: images, Connections: connections}
	h := quietHosts()
	defer h.close()
	w, err := h.farWorkspace(t.Context(), s, "gw-1", false)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := h.farImages(s)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	errs := make([]error, 2)
	var wg sync.WaitGroup
	wg.Go(func() {
		in := plan.Input{Role: "r", ChecksumSHA256: digest, DestRelpath: "in/large"}
		errs[0] = w.StageInputs(t.Context(), "run_"+"0X8Z4D1X467KV94K4TXG0D9BXT", []plan.Input{in},
			func(context.Context, string) (io.ReadCloser, int64, error) {
				return struct {
					*bytes.Reader
					io.Closer
				}{bytes.NewReader(data), io.NopCloser(nil)}, size, nil
			})
	})
	wg.Go(func() { errs[1] = folder.Put(t.Context(), "large.sif", bytes.NewReader(data), size, digest) })
	wg.Wait()
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	if n := server.Accepted.Load(); n < 2 || n > connections {
		t.Errorf("%d connections for a bound of %d", n, connections)
	}
}
