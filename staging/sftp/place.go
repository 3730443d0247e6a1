package sftp

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"slurmgate/fault"
	"slurmgate/remote"
)

//go:embed place.sh
var placeScript string

func runPlace(ctx context.Context, shell Shell, limit int64, args ...string) (remote.Output, error) {
	return shell.Run(ctx, remote.Call{Script: inBash, Args: append([]string{placeScript, "slurmgate"}, args...), Limit: limit})
}

// HashInPlace hashes a file below root on a host with a shell, where it lies: a regular file with no link on the way. state is what
// `stat -c '%i %s %.Y %.Z'` prints of it, the same before and after.
func HashInPlace(ctx context.Context, shell Shell, root, path string) (sha256, state string, err error) {
	out, err := runPlace(ctx, shell, 4<<10, "hash", root, path)
	if err != nil {
		return "", "", err
	}
	const field = "path"
	denied := func(code, rule, msg string) (string, string, error) {
		return "", "", &fault.Error{Kind: fault.Policy, Problems: []fault.Problem{{Code: code, Field: field, Rule: rule, Msg: path + " " + msg}}}
	}
	switch out.Exit {
	case 0:
	case 3:
		return "", "", fault.New(fault.NotFound, "import_missing", "there is no file "+path+" on the cluster").
			WithNext("check the spelling of the path")
	case 4:
		return denied("IMPORT-SYMLINK", "no symlink below the folder", "is a symlink or lies behind one on the cluster")
	case 5:
		return denied("IMPORT-KIND", "only a regular file", "is not a regular file on the cluster")
	case 6:
		return denied("IMPORT-ACCESS", "readable by the gateway's login on the cluster", "is not readable")
	case 7:
		return "", "", fault.New(fault.Validation, "import_changed", path+" changed while it was read").
			WithNext("register it again when nothing writes to it")
	default:
		return "", "", fault.New(fault.Transport, "far_shell", fmt.Sprintf("hashing %s on the cluster ended with status %d: %s", path, out.Exit,
			fault.Clip(out.Stderr)))
	}
	lines := strings.Split(string(out.Stdout), "\n")
	if len(lines) != 3 || len(lines[0]) != 64 {
		return "", "", fault.New(fault.Transport, "far_shell", "hashing "+path+" on the cluster gave half an answer")
	}
	return lines[0], lines[1], nil
}

// StatesInPlace are the states of files on a host with a shell, in their order; of one that cannot be read it is what the shell says.
func StatesInPlace(ctx context.Context, shell Shell, paths []string) ([]string, error) {
	out, err := runPlace(ctx, shell, 16<<20, append([]string{"states"}, paths...)...)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out.Stdout), "\n"), "\n")
	if out.Exit != 0 || len(lines) != len(paths) {
		return nil, fault.New(fault.Transport, "far_shell", "looking at files on the cluster gave half an answer")
	}
	return lines, nil
}
