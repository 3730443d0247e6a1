// Command testprog is the program in the test image: it does, on request, anything a container program may do.
//
//	testprog MODE [ARG...]
//
// It is static and alone in its image. Relative paths are below /work. An unknown mode is exit status 64.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// report lists what the program sees inside its container.
type report struct {
	Argv       []string          `json:"argv"`
	Env        map[string]string `json:"env"`
	UID        int               `json:"uid"`
	Dir        string            `json:"dir"`
	Inputs     map[string]string `json:"inputs"`
	Writes     map[string]string `json:"writes"` // path → "" when a file could be made there, else why not
	Interfaces []string          `json:"interfaces"`
	Dial       map[string]string `json:"dial"` // address → "" when it answered
	Sees       map[string]bool   `json:"sees"`
	Stdin      int               `json:"stdin"` // bytes on standard input
}

func main() {
	if len(os.Args) < 2 {
		os.Exit(64)
	}
	mode, args := os.Args[1], os.Args[2:]
	if err := run(mode, args); err != nil {
		fmt.Fprintln(os.Stderr, "testprog:", err)
		os.Exit(1)
	}
}

func run(mode string, args []string) error {
	switch mode {
	case "report": // FILE [ANYTHING...]
		return writeReport(args[0])
	case "escape": // FILE PATH...: tries to leave the container, and reports what it sees outside
		return escape(args[0], args[1:])
	case "exit": // STATUS: writes a good output first, which must not be collected
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		fmt.Println("said on stdout before the end")
		fmt.Fprintln(os.Stderr, "said on stderr before the end")
		if err := put("out/result", "good\n"); err != nil {
			return err
		}
		os.Exit(code)
	case "fail": // STATUS TEXT: ends with this as its last words
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, args[1])
		os.Exit(code)
	case "signal": // NUMBER: ends by its own hand
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		signal.Reset()
		return errors.Join(syscall.Kill(os.Getpid(), syscall.Signal(n)), wait(10))
	case "copy": // TEXT: standard input to standard output, and then this
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return err
		}
		_, err := fmt.Print(args[0])
		return err
	case "pump": // writes without end, and exits with 33 when its reader has gone
		signal.Ignore(syscall.SIGPIPE)
		for {
			if _, err := os.Stdout.WriteString("more\n"); err != nil {
				os.Exit(33)
			}
		}
	case "taste": // STATUS: reads a little of standard input
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		_, err = os.Stdin.Read(make([]byte, 1))
		fmt.Fprintln(os.Stderr, "had enough", err)
		os.Exit(code)
	case "nothing":
		return nil
	case "print": // TEXT, escapes of Go understood, on both streams
		text, err := strconv.Unquote(`"` + args[0] + `"`)
		if err != nil {
			return err
		}
		fmt.Fprint(os.Stderr, text)
		fmt.Print(text)
		return put("out/result", text)
	case "write": // FILE CONTENT...
		for i := 0; i+1 < len(args); i += 2 {
			if err := put(args[i], args[i+1]); err != nil {
				return err
			}
		}
		return nil
	case "symlink":
		return os.Symlink(args[0], args[1])
	case "fifo":
		return syscall.Mkfifo(args[0], 0o600)
	case "copytree": // FROM TO: a folder with all files in it
		return os.CopyFS(args[1], os.DirFS(args[0]))
	case "hardlink":
		return errors.Join(put("out/other", "x"), os.Link("out/other", args[0]))
	case "sums": // FILE FOLDER: writes "sha256 path, writable" of each file below the folder
		return sums(args[0], args[1])
	case "big": // FILE BYTES
		n, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return err
		}
		return errors.Join(put(args[0], ""), os.Truncate(args[0], n))
	case "hog": // MEGABYTES
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		return hog(n)
	case "sleep": // SECONDS: reports TERM, and exits
		return sleep(args[0], false)
	case "stubborn": // SECONDS: ignores TERM
		return sleep(args[0], true)
	case "await": // FILE [RESULT]: waits for FILE, writes RESULT, exits 0
		if err := await(args[0]); err != nil || len(args) == 1 {
			return err
		}
		return put(args[1], "went on\n")
	case "sums-later": // AFTER FILE FOLDER: sums once AFTER is there
		if err := await(args[0]); err != nil {
			return err
		}
		return sums(args[1], args[2])
	default:
		os.Exit(64)
	}
	return nil
}

// await marks its start with out/started, and waits for a file.
func await(name string) error {
	if err := put("out/started", "x"); err != nil {
		return err
	}
	for range 2400 {
		if _, err := os.Lstat(name); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("nothing created " + name)
}

func put(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(content), 0o644)
}

func wait(seconds int) error {
	time.Sleep(time.Duration(seconds) * time.Second)
	return nil
}

func sleep(arg string, stubborn bool) error {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGUSR1)
	// A job that is cancelled loses the process that mounts its image at the same time as it gets TERM itself: what it needs from then on must
	// be in memory already.
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		return err
	}
	<-term
	fmt.Fprintln(os.Stderr, "waiting")
	if err := put("out/started", "x"); err != nil {
		return err
	}
	end := time.After(time.Duration(n) * time.Second)
	for {
		select {
		case <-term:
			fmt.Fprintln(os.Stderr, "got TERM")
			if !stubborn {
				os.Exit(3)
			}
		case <-end:
			return put("out/result", "woke up\n")
		}
	}
}

func hog(megabytes int) error {
	debug.SetGCPercent(-1)
	var all [][]byte
	for range megabytes {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
	}
	time.Sleep(3 * time.Second) // for a watcher that polls slowly
	return put("out/result", fmt.Sprint(len(all)))
}

func writeReport(name string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	r := report{Argv: os.Args, UID: os.Getuid(), Dir: dir, Env: map[string]string{}, Inputs: map[string]string{},
		Writes: map[string]string{}, Dial: map[string]string{}, Sees: map[string]bool{}}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		r.Env[k] = v
	}
	err = filepath.WalkDir("in", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		r.Inputs[path] = string(data)
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range []string{"/", "/bin", "/etc", "/usr", "/plain", "/work", "/work/in", "/work/meta", "/work/out", "/tmp", "/var/tmp",
		"/proc", "/sys"} {
		r.Writes[d] = reason(os.WriteFile(filepath.Join(d, "written"), []byte("x"), 0o644))
	}
	_ = os.Remove("/work/out/written") // not an output
	for path := range r.Inputs {
		r.Writes[path] = reason(os.WriteFile(path, []byte("changed"), 0o644))
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		r.Interfaces = append(r.Interfaces, i.Name)
	}
	// slurmctld and sshd's places on the login node, and a name server far away.
	for _, a := range []string{"10.53.0.1:6817", "127.0.0.1:6817", "1.1.1.1:53"} {
		c, err := net.DialTimeout("tcp", a, 2*time.Second)
		if err == nil {
			c.Close()
		}
		r.Dial[a] = reason(err)
	}
	for _, p := range []string{"/shared", "/home/lab", "/etc/slurm", "/etc/munge", "/run/munge", "/work/ctl", "/work/../ctl",
		"/usr/bin/sbatch", "/ref", "/other"} {
		_, err := os.Stat(p)
		r.Sees[p] = err == nil
	}
	var b [1]byte
	r.Stdin, _ = os.Stdin.Read(b[:]) // EOF is what is expected
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return put(name, string(data))
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
