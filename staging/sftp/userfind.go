package sftp

import (
	"context"
	_ "embed"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/remote"
)

//go:embed userfind.sh
var userFindScript string

// FoundFile is a file of the far side that a search found.
type FoundFile struct {
	Path       string
	SizeBytes  int64
	ModifiedAt time.Time
}

const (
	findSeconds = 10
	findDeep    = 17 // folders below a root, and the file
	findMost    = 1000
	findBytes   = 4 << 20
)

// FindFiles returns the regular files below folders that the logged-in user can see and whose name contains part, in
// upper or lower case. Symlinks are not followed. whole is false if the search was incomplete. The result is as
// reported by the user's side.
func (w *Workspace) FindFiles(ctx context.Context, folders []string, part string) (found []FoundFile, whole bool, err error) {
	if w.cfg.Shell == nil {
		return nil, false, fault.New(fault.Internal, "import_shell", "files cannot be listed over SFTP alone")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	glob := "*" + strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(part) + "*"
	args := append([]string{strconv.Itoa(findDeep), strconv.Itoa(findSeconds), strconv.Itoa(findMost), glob}, folders...)
	out, err := w.cfg.Shell.Run(ctx, remote.Call{Script: userFindScript, Args: args, Limit: findBytes})
	if err != nil {
		return nil, false, fault.Wrap("", "", "files cannot be listed", err)
	}
	if out.Exit != 0 {
		return nil, false, fault.New(fault.Transport, "far_shell",
			fmt.Sprintf("files cannot be listed: the script on the login node ended with status %d: %s", out.Exit, fault.Clip(out.Stderr)))
	}
	found, whole = readFound(string(out.Stdout))
	return found, whole, nil
}

// readFound parses the output of the script. It skips lines that are no file.
func readFound(text string) (found []FoundFile, whole bool) {
	for line := range strings.SplitSeq(text, "\x00") {
		if line == "end" {
			whole = true
			continue
		}
		size, rest, _ := strings.Cut(line, " ")
		at, name, ok := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(size, 10, 64)
		s, terr := strconv.ParseFloat(at, 64)
		if !ok || err != nil || terr != nil || n < 0 || s < 0 || s > 1<<40 || !path.IsAbs(name) || path.Clean(name) != name {
			continue
		}
		if len(found) == findMost {
			return found, false
		}
		found = append(found, FoundFile{name, n, time.Unix(int64(s), 0)})
	}
	return found, whole
}
