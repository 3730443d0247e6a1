package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// serviceManager is the systemd that started this process, see sd_notify(3): datagrams of KEY=VALUE lines to the socket
// NOTIFY_SOCKET. A process that systemd did not start has none, and sends nothing.
type serviceManager struct {
	socket   string
	watchdog time.Duration // the interval at which a sign of life is due; 0: none is
	log      *slog.Logger
	status   string // the last one
}

// findServiceManager reads the environment, and removes it: jobs and commands are not to speak for the gateway.
func findServiceManager(log *slog.Logger) *serviceManager {
	m := &serviceManager{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		n, _ := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64) // without it there is no watchdog
		m.watchdog = time.Duration(max(0, n)) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	return m
}

// notify sends lines to systemd.
func (m *serviceManager) notify(lines ...string) {
	if m.socket == "" {
		return
	}
	// A name that begins with @ is an abstract one; package net reads it so, too.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(strings.Join(lines, "\n")))
		c.Close()
	}
	if err != nil {
		m.log.Error("systemd cannot be notified", "err", err)
	}
}

// say sets the line that `systemctl status` shows.
func (m *serviceManager) say(status string) {
	if status != m.status {
		m.status = status
		m.notify("STATUS=" + strings.ReplaceAll(status, "\n", " "))
	}
}

// reloading announces that the gateway restarts; READY=1 ends it.
func (m *serviceManager) reloading() {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail with this clock
	m.notify("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
}
