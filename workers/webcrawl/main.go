// Command webcrawl is a sample service worker (docs/tools/running-workers.md). It serves two tools, scrape and crawl, and has
// them done by an HTTP API in the manner of Firecrawl, to which it authenticates with a bearer key. Only this process has the key.
//
//	POST /run          input.mode selects the tool: scrape (default) or crawl
//	POST /scrape/run   one page
//	POST /crawl/run    a page and those it links to
//	GET  /healthz      {"ok":true}
//
// Its environment:
//
//	FIRECRAWL_API_KEY        the key, or
//	FIRECRAWL_API_KEY_FILE   a file that holds it; it is read for each call, so a new key needs no restart
//	FIRECRAWL_BASE_URL       the API (default https://api.firecrawl.dev)
//	WEBCRAWL_LISTEN          address and port (default 127.0.0.1:8080)
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// exitConfig is sysexits' EX_CONFIG: systemd does not start it again.
const exitConfig = 78

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	s, listen, err := configured(os.Getenv, log)
	if err != nil {
		fmt.Fprintln(os.Stderr, "webcrawl:", err)
		os.Exit(exitConfig)
	}
	if err := serve(ctx, s, listen, log); err != nil {
		fmt.Fprintln(os.Stderr, "webcrawl:", err)
		os.Exit(1)
	}
}

// configured reads the environment.
func configured(env func(string) string, log *slog.Logger) (*server, string, error) {
	listen := env("WEBCRAWL_LISTEN")
	if listen == "" {
		listen = "127.0.0.1:8080"
	}
	base := env("FIRECRAWL_BASE_URL")
	if base == "" {
		base = "https://api.firecrawl.dev"
	}
	up, err := newUpstream(base, env("FIRECRAWL_API_KEY"), env("FIRECRAWL_API_KEY_FILE"))
	if err != nil {
		return nil, "", err
	}
	return &server{up: up, log: log, now: time.Now}, listen, nil
}

// serve answers until ctx ends, and then lets calls in progress finish.
func serve(ctx context.Context, s *server, listen string, log *slog.Logger) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", listen, err)
	}
	log.Info("serving", "address", l.Addr().String(), "upstream", s.up.base)
	h := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	log.Info("stopping")
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err = h.Shutdown(wait)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// checkKey accepts what a bearer token consists of (RFC 6750), so that the key is the same text in JSON and in headers.
func checkKey(key string) (string, error) {
	key = strings.TrimSpace(key)
	plain := strings.Trim(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=") == ""
	if len(key) < 8 || len(key) > 512 || !plain {
		return "", errors.New("the key must have 8 to 512 characters: letters, digits and - . _ ~ + / =")
	}
	return key, nil
}
