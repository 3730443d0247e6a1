package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"
)

// walls reports what the program found when it tried to leave the container.
type walls struct {
	Status    map[string]string `json:"status"`    // of /proc/self/status
	Processes []string          `json:"processes"` // names of all that it sees
	Tries     map[string]string `json:"tries"`     // what it tried → "" when it worked, else why not
	Sees      map[string]bool   `json:"sees"`
	Shared    []string          `json:"shared"`  // files in /tmp, /var/tmp and /dev/shm
	Outside   []string          `json:"outside"` // folders that it reaches through descriptors of other processes
}

func escape(file string, paths []string) error {
	w := walls{Status: map[string]string{}, Tries: map[string]string{}, Sees: map[string]bool{}}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		k, v, _ := strings.Cut(line, ":")
		w.Status[k] = strings.TrimSpace(v)
	}
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		comm, _ := os.ReadFile(name)
		w.Processes = append(w.Processes, strings.TrimSpace(string(comm)))
	}
	for _, pattern := range []string{"/proc/[0-9]*/root", "/proc/[0-9]*/cwd", "/proc/[0-9]*/fd/*"} {
		links, _ := filepath.Glob(pattern)
		for _, link := range links {
			for _, p := range []string{"etc/slurm", "shared"} {
				if _, err := os.Stat(filepath.Join(link, p)); err == nil {
					w.Outside = append(w.Outside, filepath.Join(link, p))
				}
			}
		}
	}
	for _, p := range paths {
		_, err := os.Stat(p)
		w.Sees[p] = err == nil
	}
	for _, d := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		found, _ := filepath.Glob(d + "/*")
		w.Shared = append(w.Shared, found...)
	}
	for name, flags := range map[string]uintptr{"clone a user namespace": syscall.CLONE_NEWUSER,
		"clone user and mount namespaces": syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS} {
		c := exec.Command("/proc/self/exe", "nothing")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		w.Tries[name] = reason(c.Run())
	}
	w.Tries["clone3 a user namespace"] = errno(clone3(syscall.CLONE_NEWUSER))
	w.Tries["unshare a mount namespace"] = reason(syscall.Unshare(syscall.CLONE_NEWNS))
	w.Tries["mount"] = reason(syscall.Mount("none", "/tmp", "tmpfs", 0, ""))
	w.Tries["change root"] = reason(syscall.Chroot("/tmp"))
	w.Tries["become root"] = reason(syscall.Setuid(0))
	w.Tries["make a device"] = reason(syscall.Mknod("/tmp/disk", syscall.S_IFBLK|0o600, 8<<8))
	_, err = os.ReadFile("/dev/mem")
	w.Tries["read memory"] = reason(err)
	w.Tries["lower the host's limits"] = reason(os.WriteFile("/proc/sys/kernel/hostname", []byte("mine"), 0o644))
	data, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return put(file, string(data))
}

// clone3 starts a process that ends at once, with flags that no filter of seccomp can read.
func clone3(flags uint64) syscall.Errno {
	const number = 435 // on every architecture
	args := [11]uint64{flags, 0, 0, 0, uint64(syscall.SIGCHLD)}
	pid, _, err := syscall.RawSyscall(number, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if err == 0 && pid == 0 {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if err == 0 {
		var status syscall.WaitStatus
		_, _ = syscall.Wait4(int(pid), &status, 0, nil)
	}
	return err
}

func errno(e syscall.Errno) string {
	if e == 0 {
		return ""
	}
	return e.Error()
}
