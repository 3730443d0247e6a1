package staging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan"
	"slurmgate/run"
)

// Names, forms and faults that all workspaces share, on every kind of storage.

// Names of files that the gateway writes.
const (
	GatewayIDFile = ".gateway-id" // in runs_dir: the one gateway it serves
	TokenFile     = "token"       // in ctl: the attempt's token
)

// MaxClaim bounds a claim file; real ones are one line.
const MaxClaim = 64 << 10

var (
	tokenForm   = regexp.MustCompile(`^[0-9a-f]{32}$`)
	controlName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// CheckAttempt returns a Validation fault unless runID and n can be a run's id and an attempt's number.
func CheckAttempt(runID string, n int) error {
	switch {
	case !plan.IsRunID(runID):
		return fault.New(fault.Validation, "run_id", fmt.Sprintf("%q is not a run id", runID))
	case n < 1:
		return fault.New(fault.Validation, "attempt_number", fmt.Sprintf("attempts are numbered from 1, got %d", n))
	}
	return nil
}

// CheckOpen returns a Validation fault for a token of the wrong form, and for control files that the gateway does not
// write.
func CheckOpen(token string, files []run.ControlFile) error {
	if !tokenForm.MatchString(token) {
		return fault.New(fault.Validation, "token", "a token is 32 lower-case hex digits")
	}
	for _, f := range files {
		if !controlName.MatchString(f.Name) || f.Name == run.ClaimFile || f.Name == TokenFile {
			return fault.New(fault.Validation, "control_name",
				fault.Quote(f.Name, 80)+" is not the name of a control file that the gateway writes")
		}
	}
	return nil
}

// CheckControl returns a Validation fault for a text that cannot be the name of a control file.
func CheckControl(name string) error {
	if !controlName.MatchString(name) {
		return fault.New(fault.Validation, "control_name", fault.Quote(name, 80)+" is not the name of a control file")
	}
	return nil
}

// CheckClaim returns an Internal fault for a claim that is empty or longer than MaxClaim.
func CheckClaim(content []byte) error {
	if len(content) == 0 || len(content) > MaxClaim {
		return fault.New(fault.Internal, "claim_content", fmt.Sprintf("a claim of %d bytes", len(content)))
	}
	return nil
}

// CheckSource returns a Validation fault for a text that cannot be the path of an output.
func CheckSource(srcRelpath string) error {
	if msg := plan.CheckRelPath(srcRelpath, "out"); msg != "" {
		return fault.Invalid("", fault.Problem{Code: "PLAN-SRC-PATH", Field: "src_relpath", Msg: msg})
	}
	return nil
}

// AttemptName returns the name of an attempt's folder.
func AttemptName(n int) string { return fmt.Sprintf("a%d", n) }

// IsAttemptName reports whether a name is that of an attempt's folder.
func IsAttemptName(name string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "a"))
	return err == nil && n > 0 && name == AttemptName(n)
}

// GoneFile returns the content of the file that replaces a removed attempt's folder.
func GoneFile(token string) []byte { return []byte("slurmgate-removed 1 token=" + token + "\n") }

// CheckID returns a Conflict fault unless content, the mark of runsDir, is that of the gateway.
func CheckID(runsDir, gatewayID string, content []byte) error {
	got := strings.TrimSuffix(string(content), "\n")
	if got == gatewayID {
		return nil
	}
	return fault.New(fault.Conflict, "runs_dir_of_another_gateway",
		fmt.Sprintf("%s belongs to gateway %s; this gateway is %q", runsDir, fault.Quote(string(got), 80), gatewayID)).
		WithNext("give this gateway its own runs_dir, or the ledger that belongs to this one")
}

// Unmarked returns the fault of a runs_dir that has workspaces and lacks its mark.
func Unmarked(runsDir, gatewayID string) error {
	return fault.New(fault.Transport, "runs_dir_unavailable", "unfinished runs have their workspaces in runs_dir "+runsDir+
		", but it has no file "+GatewayIDFile+": its filesystem is not mounted, or it was emptied").
		WithNext(fmt.Sprintf("mount it; if it was emptied, write %s into %s/%s and cancel those runs", gatewayID, runsDir, GatewayIDFile))
}

// AttemptMissing returns the fault of an attempt without a folder.
func AttemptMissing(runID string, n int, err error) error {
	return fault.Wrap(fault.NotFound, "attempt_missing", fmt.Sprintf("attempt %d of %s has no folder", n, runID), err)
}

// ControlMissing returns the fault of a missing control file.
func ControlMissing(runID string, n int, name string, err error) error {
	return fault.Wrap(fault.NotFound, "control_missing", fmt.Sprintf("attempt %d of %s has no %s", n, runID, name), err)
}

// Ahead returns the fault of an attempt whose token differs from the ledger's.
func Ahead(name string, got []byte, token string, err error) error {
	return fault.Wrap(fault.Conflict, "workspace_ahead_of_ledger",
		fmt.Sprintf("%s exists with token %s, but the ledger has %q", name, fault.Quote(string(bytes.TrimSpace(got)), 40), token), err).
		WithNext("find out which ledger opened this attempt: was a backup restored, or does a second gateway run? Nothing is sent until then")
}

// Unknown returns the fault of an attempt that is not in the ledger.
func Unknown(name string) error {
	return fault.New(fault.Conflict, "workspace_ahead_of_ledger", "the ledger does not know attempt "+name).
		WithNext("find out which ledger opened this attempt; nothing was removed")
}

// DiskFull returns the fault of a full filesystem.
func DiskFull(msg string, err error) error {
	return fault.Wrap(fault.Transport, "disk_full", msg, err).WithNext("free space, or raise the quota, of the filesystem of runs_dir")
}

// ForeignEntry returns the fault of an entry in a run's folder that the gateway did not create.
func ForeignEntry(msg string, err error) error {
	return fault.Wrap(fault.Conflict, "workspace_foreign_entry",
		msg+": the run's folder contains something that the gateway did not create", err).
		WithNext("look into the run's folder below runs_dir and remove what does not belong there")
}

// Opened returns the fault of an input whose bytes cannot be opened.
func Opened(in plan.Input, err error) error {
	return fault.Wrap("", fault.CodeOf(err), "the bytes of input "+in.DestRelpath+" cannot be opened", err)
}

// WrongInput returns the fault of an input whose bytes are not the pinned ones.
func WrongInput(in plan.Input, got string) error {
	return Damaged(fmt.Sprintf("the stored bytes of input %s have checksum %s instead of the pinned %s", in.DestRelpath, got,
		in.ChecksumSHA256), nil)
}

// Damaged returns the fault of stored bytes that do not match their checksum.
func Damaged(msg string, err error) error {
	return fault.Wrap(fault.Validation, "input_checksum", msg, err).
		WithNext("repair the artifact store, then retry the run").WithSteps(fault.Do("artifact.verify", "all", true))
}

// OutputFault returns the fault of a rejected declared output.
func OutputFault(code, rel, why string) error {
	return fault.New(fault.Tool, code, "declared output "+rel+" "+why)
}

// Acceptable returns a Tool fault unless a file may be collected as a declared output. mode and nlink are those of
// stat(2).
func Acceptable(rel string, mode uint32, nlink uint64, uid, jobUID int) error {
	switch {
	case mode&unix.S_IFMT != unix.S_IFREG:
		return OutputFault(run.OutputIrregular, rel, "is "+files.Kind(mode)+", not a regular file")
	case nlink > 1:
		return OutputFault(run.OutputHardlink, rel, fmt.Sprintf("has %d hard links; a collected file must have exactly one", nlink))
	case nlink == 0:
		return OutputFault(run.OutputMissing, rel, "was removed while it was opened")
	case uid != jobUID:
		return OutputFault(run.OutputOwner, rel, fmt.Sprintf("belongs to user %d, not to the job's user %d", uid, jobUID))
	}
	return nil
}

// Failed converts an error of a filesystem, or of the caller's context, to a fault that can be retried. It returns
// faults and nil unchanged.
func Failed(msg string, err error) error {
	switch {
	case err == nil:
		return nil
	case isFault(err):
		return err
	case errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Canceled, "canceled", msg, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "timeout", msg, err)
	}
	return fault.Wrap(fault.Transport, "filesystem", msg, err)
}

func isFault(err error) bool {
	_, ok := errors.AsType[*fault.Error](err)
	return ok
}

// Locks holds a lock for each run. The zero value is ready.
type Locks struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // by run; closed when free
}

// Lock waits until the run is free and locks it.
func (l *Locks) Lock(ctx context.Context, runID string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		other, taken := l.busy[runID]
		if !taken {
			if l.busy == nil {
				l.busy = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			l.busy[runID] = mine
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.busy, runID)
				l.mu.Unlock()
				close(mine)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, Failed("the caller gave up", ctx.Err())
		}
	}
}
