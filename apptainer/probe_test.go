//go:build cluster

package apptainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// report holds what the probe finds out about its container.
type report struct {
	Cwd, Home  string
	Umask      string
	CapEff     string
	NoNewPrivs string
	Input      string            // content of /work/in/data
	Connect    string            // error of opening a TCP connection; empty: none
	Interfaces []string          // of the network
	Mounts     []string          // mount points
	Env        []string          // names
	Values     map[string]string // of the variables named in the arguments
	Fds        []string          // open descriptors
	Write      map[string]string // path → error of opening it for writing
	Sees       map[string]bool   // path → it exists
}

// probe is the program in the container: it prints its report and exits.
func probe(args []string) {
	if err := json.NewEncoder(os.Stdout).Encode(look(args)); err != nil {
		panic(err)
	}
	os.Exit(0)
}

func look(args []string) report {
	r := report{Home: os.Getenv("HOME"), Values: map[string]string{}, Write: map[string]string{}, Sees: map[string]bool{}}
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	r.Umask = fmt.Sprintf("%04o", mask)
	r.Cwd, _ = os.Getwd()
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		r.Env = append(r.Env, name)
	}
	for _, name := range args {
		if v, ok := os.LookupEnv(name); ok {
			r.Values[name] = v
		}
	}
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		r.Mounts = append(r.Mounts, strings.Fields(line)[4])
	}
	for line := range strings.Lines(read("/proc/net/dev")) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			r.Interfaces = append(r.Interfaces, strings.TrimSpace(name))
		}
	}
	for line := range strings.Lines(read("/proc/self/status")) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "CapEff":
			r.CapEff = strings.TrimSpace(value)
		case "NoNewPrivs":
			r.NoNewPrivs = strings.TrimSpace(value)
		}
	}
	r.Fds = descriptors()
	r.Input = read("/work/in/data")
	for _, path := range []string{"/new", "/bin/new", "/work/new", "/work/in/new", "/work/in/data", "/work/meta/new", "/ref/new",
		"/work/out/new", "/tmp/new"} {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
		r.Write[path] = bare(err)
		f.Close()
	}
	for _, path := range args {
		if strings.HasPrefix(path, "/") {
			_, err := os.Stat(path)
			r.Sees[path] = err == nil
		}
	}
	r.Connect = connect()
	return r
}

// descriptors lists the open descriptors the probe was started with: those of a Go program's own poller are
// made with close-on-exec, an inherited one cannot have it.
func descriptors() (fds []string) {
	for fd := range 1024 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, strconv.Itoa(fd))
		}
	}
	slices.Sort(fds)
	return fds
}

func connect() string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return bare(err)
	}
	defer unix.Close(fd)
	return bare(unix.Connect(fd, &unix.SockaddrInet4{Port: 6817, Addr: [4]byte{10, 53, 0, 1}}))
}

func read(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

// bare returns the errno's text without operation and path.
func bare(err error) string {
	var no syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &no):
		return no.Error()
	}
	return err.Error()
}
