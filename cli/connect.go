package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/site"
)

// Session is a verb's connection to the gateway.
type Session struct {
	app  *Shell
	site *site.Site
	*link

	dryRun  bool     // of the next calls
	key     string   // their idempotency key; empty: none
	file    *os.File // handed over with them; nil: none
	project string   // name or id, which inputs are imported into; empty: the caller's own or the default
}

// tokenVariable holds the token of the calls.
const tokenVariable = "SLURMGATE_TOKEN"

// Dial reaches the gateway at a socket. A token in the environment makes the calls the token's: for programs that should do less than
// their user may.
func (a *Shell) Dial(ctx context.Context, socket string) (*httpapi.Client, error) {
	c, err := httpapi.Dial(ctx, socket)
	if err == nil {
		c.Bear(os.Getenv(tokenVariable))
	}
	return c, err
}

// call carries out one of the gateway's operations and decodes its result.
func (s *Session) call(ctx context.Context, toolID string, args, result any) error {
	return s.callTool(ctx, toolID, app.BuiltinVersion, args, result)
}

// callTool makes one tool call and decodes its result.
func (s *Session) callTool(ctx context.Context, toolID, version string, args, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	var res gate.Response
	req := gate.NewRequest(toolID, version, raw)
	if req.DryRun = s.dryRun; s.key != "" {
		req.IdempotencyKey = &s.key
	}
	ownKey(&req, cmp.Or(operation(app.Host{}, toolID).Repeat, gate.Idempotent)) // a toolpack's tool finds its run
	if len(raw) > gate.MaxInline && toolID != "artifact.import" {
		if s.dryRun {
			return fault.New(fault.Validation, "args_too_large",
				fmt.Sprintf("the arguments have %d bytes; more than %d would need an artifact, which a dry run cannot create", len(raw),
					gate.MaxInline)).
				WithNext("the same without --dry-run, or a dry run of a part of it")
		}
		if req, err = s.byReference(ctx, req); err != nil {
			return err
		}
	}
	lost := false // the gateway went away during the last try
	err = s.meanwhile(ctx, req, s.nameOf(args), func() error {
		return s.retry(ctx, func(c *httpapi.Client) (err error) {
			res, err = c.CallWith(ctx, req, s.file)
			lost = Gone(err)
			return err
		})
	})
	switch {
	case err != nil && lost && req.IdempotencyKey != nil && s.key == "": // another command would have another key
		return fault.Wrap(fault.Unknown, "outcome_unknown", "it is unknown whether "+toolID+" was carried out", err).
			WithNext("look whether it was, before you repeat it")
	case err != nil:
		return err
	}
	if res.ResultRef == nil {
		return decode(res, result)
	}
	var b bytes.Buffer // too large for an envelope
	if err := s.content(ctx, strings.TrimPrefix(*res.ResultRef, "artifact://"), &b); err != nil {
		return err
	}
	return unmarshal(b.Bytes(), result)
}

// nameOf returns the name of an import or verification, for its progress.
func (s *Session) nameOf(args any) string {
	switch a := args.(type) {
	case app.ImportArgs:
		if a.Path != nil {
			return filepath.Base(*a.Path)
		}
	case app.VerifyArgs:
		return a.ArtifactID
	case app.AddReferenceArgs:
		return filepath.Base(a.Path)
	}
	return ""
}

// shortText is the longest text in bytes that is sent in the call itself: JSON may write a byte as six.
const shortText = gate.MaxInline / 8

// importStream imports what r contains, up to the size that policy allows: a short text in the call itself, anything
// else as a stream next to it.
func (s *Session) importStream(ctx context.Context, r io.Reader, args app.ImportArgs, result *app.ImportAnswer) error {
	head, err := io.ReadAll(io.LimitReader(r, shortText))
	switch {
	case fault.Is(err, fault.Canceled):
		return err
	case err != nil:
		return fault.Wrap(fault.Validation, "input_unreadable", "standard input cannot be read", err)
	}
	if len(head) < shortText && utf8.Valid(head) && !bytes.ContainsRune(head, 0) {
		text := string(head)
		args.Text = &text
		return s.call(ctx, "artifact.import", args, result)
	}
	if args.Label == "" {
		args.Label = "stdin"
	}
	// Once: what was read cannot be read again for another gateway.
	m := &meter{shell: s.app, name: "standard input", began: time.Now()}
	body := &metered{Reader: io.MultiReader(bytes.NewReader(head), r), meter: m, what: "importing"}
	res, err := s.way().Upload(ctx, body, args.Label, args.Type, args.ProjectID)
	m.end(err)
	if err != nil {
		return fault.Wrap(fault.KindOf(err), fault.CodeOf(err),
			"standard input was not imported, and nothing of it was stored", err).WithNext("run the command again")
	}
	return decode(res, result)
}

// byReference puts arguments that are too large for an envelope into an artifact.
func (s *Session) byReference(ctx context.Context, req gate.Request) (gate.Request, error) {
	var a app.ArtifactDoc
	err := s.retry(ctx, func(c *httpapi.Client) error {
		res, err := c.Upload(ctx, bytes.NewReader(req.Args), "arguments of "+req.ToolID, "JSON", "")
		if err == nil {
			err = decode(res, &a)
		}
		return err
	})
	ref := "artifact://" + a.ArtifactID
	req.Args, req.ArgsRef = json.RawMessage("{}"), &ref
	return req, err
}

// content copies an artifact's bytes to w.
func (s *Session) content(ctx context.Context, artifactID string, w io.Writer) error {
	n := &countingWriter{w: w}
	return s.retry(ctx, func(c *httpapi.Client) error {
		err := c.Content(ctx, artifactID, n)
		if err != nil && n.written {
			return fault.Wrap(fault.Transport, "content_cut_off", "only part of "+artifactID+" arrived", err).WithNext("fetch it again")
		}
		return err
	})
}

// copyChecked copies an artifact's bytes to w and fails if they do not match the checksum.
func (s *Session) copyChecked(ctx context.Context, o app.ArtifactDoc, w io.Writer) error {
	h := sha256.New()
	if err := s.content(ctx, o.ArtifactID, io.MultiWriter(w, h)); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != o.ChecksumSHA256 {
		return fault.New(fault.Internal, "artifact_corrupt",
			fmt.Sprintf("the received bytes of %s have checksum %s, but %s is recorded", o.ArtifactID, got, o.ChecksumSHA256)).
			WithNext("check whether the stored bytes are damaged").WithSteps(fault.Do("artifact.verify", "artifact_id", o.ArtifactID))
	}
	return nil
}

type countingWriter struct {
	w       io.Writer
	written bool
}

func (c *countingWriter) Write(p []byte) (int, error) {
	c.written = c.written || len(p) > 0
	return c.w.Write(p)
}

func decode(res gate.Response, result any) error {
	if res.Error != nil {
		return callError{res.Error.Fault(), res.Error}
	}
	return unmarshal(res.Result, result)
}

// unmarshal parses an answer into result. It removes an earlier answer first: encoding/json keeps the entries of a map,
// and fields that an answer does not have.
func unmarshal(data []byte, result any) error {
	if v := reflect.ValueOf(result); v.Kind() == reflect.Pointer && !v.IsNil() {
		v.Elem().SetZero()
	}
	return json.Unmarshal(data, result)
}

// With connects, runs f and closes. Within f it runs on the same session.
func (a *Shell) With(ctx context.Context, f func(*Session) error) (err error) {
	if a.session != nil {
		return f(a.session)
	}
	if a.session, err = a.connect(ctx); err != nil {
		return err
	}
	defer func() {
		a.session.close(ctx, a)
		a.session = nil
	}()
	return f(a.session)
}
