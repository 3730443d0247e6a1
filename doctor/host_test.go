package doctor

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/app"
	"slurmgate/site"
)

// With few files to open there are fewer connections, so that the ledger and Slurm's commands find some; doctor says so.
func TestOpenFiles(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	for files, want := range map[uint64]int{256: 64, 1024: 100} {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		if n, may := Connections(100); n != want || may != files {
			t.Errorf("%d files: %d connections, %d", files, n, may)
		}
		f := openFiles(&site.Site{Limits: site.Limits{SocketConnections: 100}})[0]
		if warned := f.Status == app.CheckWarning; warned != (want < 100) || warned && !strings.Contains(f.Remedy,
			"LimitNOFILE of the service to 400") {
			t.Errorf("%d files: %+v", files, f)
		}
	}
}
