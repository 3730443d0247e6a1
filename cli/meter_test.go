package cli

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/run"
)

// Elsewhere than on a terminal progress is a line at the start, one every ten seconds and one at the end; on a terminal one live line.
//
// proves DATA-05
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		m := meter{shell: &Shell{Err: &out}, name: "reads.fq", began: time.Now()}
		for i := range 50 {
			m.show(run.NewMoving("importing", int64(i)*100<<20, 0, 5000<<20, time.Duration(i)*500*time.Millisecond))
			time.Sleep(500 * time.Millisecond)
		}
		m.end(nil)
		want := "importing reads.fq  0 B of 5000 MiB (0 %)\n" +
			"importing reads.fq  2000 MiB of 5000 MiB (40 %)  200 MiB/s  15s left\n" +
			"importing reads.fq  4000 MiB of 5000 MiB (80 %)  200 MiB/s  5s left\n" +
			"importing reads.fq: 5000 MiB in 25s\n"
		if out.String() != want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), want)
		}
		out.Reset()
		m.end(errors.New("cut"))
		if got := out.String(); got != "importing reads.fq: stopped after 4900 MiB of 5000 MiB (98 %)\n" {
			t.Errorf("the meter of a failed call printed %q", got)
		}
		out.Reset()
		m = meter{shell: &Shell{Err: &out, tty: true}, began: time.Now()}
		m.end(nil)
		if out.Len() > 0 {
			t.Errorf("nothing was shown: %q", out.String())
		}
		m.show(run.NewMoving("hashing", 1<<20, 1<<20, 0, time.Second))
		m.end(nil)
		if got := out.String(); got != "\rhashing  1024 KiB\x1b[K\r\x1b[K" {
			t.Errorf("the meter on a terminal printed %q", got)
		}
	})
}
