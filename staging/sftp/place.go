package sftp

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan/tree"
	"slurmgate/remote"
)

//go:embed place.sh
var placeScript string

// PlaceScript is the script that hashes files and directories where they lie. Jobs that do so execute it, too.
func PlaceScript() []byte { return []byte(placeScript) }

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
	if err := placeFault(out, path, "a regular file"); err != nil {
		return "", "", err
	}
	sha256, state, _, err = tree.ParseSum(string(out.Stdout), path)
	return sha256, state, err
}

// placeFault is what an exit status of the script says about a path.
func placeFault(out remote.Output, path, kind string) error {
	denied := func(code, rule, msg string) error {
		return &fault.Error{Kind: fault.Policy, Problems: []fault.Problem{{Code: code, Field: "path", Rule: rule, Msg: path + " " + msg}}}
	}
	switch out.Exit {
	case 0:
		return nil
	case 3:
		return fault.New(fault.NotFound, "import_missing", "there is no file "+path+" on the cluster").
			WithNext("check the spelling of the path")
	case 4:
		return denied("IMPORT-SYMLINK", "no symlink below the folder", "is a symlink or lies behind one on the cluster")
	case 5:
		return denied("IMPORT-KIND", "only "+kind, "is not "+kind+" on the cluster")
	case 6:
		return denied("IMPORT-ACCESS", "readable by the gateway's login on the cluster", "is not readable")
	case 7:
		return fault.New(fault.Validation, "import_changed", path+" changed while it was read").
			WithNext("register it again when nothing writes to it")
	case 8:
		return tree.Entry(path+"/"+strings.TrimPrefix(strings.TrimSpace(string(out.Stdout)), "./"),
			"is a link or a special file, or has a name or depth that a directory artifact cannot have")
	case 9:
		return tree.TooMany()
	}
	return fault.New(fault.Transport, "far_shell", fmt.Sprintf("hashing %s on the cluster ended with status %d: %s", path, out.Exit,
		fault.Clip(out.Stderr)))
}

// HashTreeInPlace hashes the files of a directory below root on a host with a shell, where they lie. state is that of [StatesInPlace], the
// same before and after.
func HashTreeInPlace(ctx context.Context, shell Shell, root, path string) (list []tree.File, state string, err error) {
	out, err := runPlace(ctx, shell, 128<<20, "tree", root, path, strconv.Itoa(tree.MaxFiles), strconv.Itoa(tree.MaxDepth))
	if err == nil {
		err = placeFault(out, path, "a directory")
	}
	if err != nil {
		return nil, "", err
	}
	return tree.ParseSums(string(out.Stdout), path)
}

// LookInPlace is the state of a file or directory below root, and about how many bytes it has.
func LookInPlace(ctx context.Context, shell Shell, root, path string) (state string, bytes int64, err error) {
	out, err := runPlace(ctx, shell, 4<<10, "look", root, path)
	if err == nil {
		err = placeFault(out, path, "a regular file or a directory")
	}
	if err != nil {
		return "", 0, err
	}
	state, size, _ := strings.Cut(strings.TrimSuffix(string(out.Stdout), "\n"), "\n")
	if bytes, err = strconv.ParseInt(size, 10, 64); err != nil {
		return "", 0, tree.HalfSums(path)
	}
	return state, bytes, nil
}

// StatesInPlace are the states of files and directories on a host with a shell, in their order; of one that cannot be read it is
// what the shell says.
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
