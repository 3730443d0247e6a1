package adapter

import (
	"bufio"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"slurmgate/fault"
	"slurmgate/visible"
)

// process is an upstream that speaks on standard input and output.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	done chan struct{}
}

// always lists the variables that every upstream gets.
var always = []string{"PATH", "HOME", "LANG", "TMPDIR"}

const (
	endTime  = 2 * time.Second // for an upstream to end, each time it is asked
	maxLine  = 1 << 10         // of its standard error that the log has
	maxLines = 200             // a connection
)

// start starts the upstream in a new process group, with the listed variables and no others.
func start(u Upstream, log *slog.Logger) (*process, error) {
	p := &process{cmd: exec.Command(u.Command[0], u.Command[1:]...), done: make(chan struct{})}
	p.cmd.Dir = u.Dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Env = []string{}
	for _, name := range append(always, u.Env...) {
		if value, ok := os.LookupEnv(name); ok {
			p.cmd.Env = append(p.cmd.Env, name+"="+value)
		}
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Separate pipes: those of exec.Cmd are closed when the process ends, before its last lines are read.
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	said, saidEnd, err := os.Pipe()
	if err != nil {
		out.Close()
		outEnd.Close()
		return nil, err
	}
	p.in, p.out, p.cmd.Stdout, p.cmd.Stderr = in, out, outEnd, saidEnd
	err = p.cmd.Start()
	outEnd.Close()
	saidEnd.Close()
	if err != nil {
		out.Close()
		said.Close()
		return nil, err
	}
	go tellErrors(said, log)
	go func() {
		err := p.cmd.Wait()
		log.Info("the upstream's process has ended", "err", err)
		close(p.done)
	}()
	return p, nil
}

// tellErrors logs the first lines of the upstream's standard error and reads the rest.
func tellErrors(from io.ReadCloser, log *slog.Logger) {
	defer from.Close()
	r := bufio.NewReaderSize(from, maxLine)
	for n := 0; ; {
		line, more, err := r.ReadLine()
		if err != nil {
			return
		}
		if text := strings.TrimSpace(string(line)); text != "" && n < maxLines {
			log.Info("the upstream says", "line", visible.Text(fault.ClipTo(text, maxLine)))
			n++
		}
		for more && err == nil {
			_, more, err = r.ReadLine()
		}
	}
}

// end ends the process with all it started: by closing its input, then by a signal, then by force.
func (p *process) end() {
	_ = p.in.Close()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-p.done:
		case <-time.After(endTime):
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
	<-p.done
	_ = p.out.Close()
}
