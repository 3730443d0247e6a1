package sftp

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan/tree"
	"slurmgate/remote"
)

//go:embed place.sh
var placeScript string

// PlaceScript returns the script that hashes files and directories in place. Jobs that do so execute it too.
func PlaceScript() []byte { return []byte(placeScript) }

func runPlace(ctx context.Context, shell Shell, limit int64, args ...string) (remote.Output, error) {
	return shell.Run(ctx, remote.Call{Script: inBash, Args: append([]string{placeScript, "slurmgate"}, args...), Limit: limit})
}

// told reads the output of the script line by line while it hashes: its progress, and the files that it has hashed.
type told struct {
	progress *files.Progress
	file     func(tree.File) // nil: the script hashes one file
	at       int64           // bytes hashed of that file
	rest     []byte          // of an incomplete line
	text     bytes.Buffer    // all but the progress
}

func (t *told) Write(p []byte) (int, error) {
	t.rest = append(t.rest, p...)
	for {
		line, rest, whole := bytes.Cut(t.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		var at int64
		if _, err := fmt.Sscanf(string(line), "at %d", &at); err == nil && t.file == nil {
			t.progress.Count(max(0, at-t.at))
			t.at = max(at, t.at)
		} else {
			t.text.Write(append(line, '\n'))
			if f, ok := tree.ParseSum1(string(line)); ok && t.file != nil {
				t.progress.Count(f.Size)
				t.file(f)
			}
		}
		t.rest = rest
	}
}

// hashPlace runs hash or tree for a path in the given state, without its first skip files, and reports to the progress
// of ctx.
func hashPlace(ctx context.Context, shell Shell, t *told, state string, skip int, args ...string) (remote.Output, error) {
	t.progress = files.Watcher(ctx)
	args = append([]string{placeScript, "slurmgate", "from", strconv.Itoa(skip), state}, args...)
	return shell.Run(ctx, remote.Call{Script: inBash, Args: args, Limit: 128 << 20, Sink: t})
}

// HashInPlace hashes a file below root in place, on a host with a shell: a regular file, reached without a symlink,
// which must have the state before and after. The state is what `stat -c '%i %s %.Y %.Z'` prints of it.
func HashInPlace(ctx context.Context, shell Shell, root, path, state string) (sha256 string, size int64, err error) {
	var t told
	out, err := hashPlace(ctx, shell, &t, state, 0, "hash", root, path)
	if err == nil {
		err = placeFault(out, t.text.String(), path, "a regular file")
	}
	if err != nil {
		return "", 0, err
	}
	sha256, now, size, err := tree.ParseSum(t.text.String(), path)
	if err == nil && now != state {
		err = tree.HalfSums(path)
	}
	return sha256, size, err
}

// placeFault returns the fault for an exit status of the script, nil for 0.
func placeFault(out remote.Output, said, path, kind string) error {
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
		return denied("IMPORT-SYMLINK", "no symlink below the folder", "is a symlink or is reached through one on the cluster")
	case 5:
		return denied("IMPORT-KIND", "only "+kind, "is not "+kind+" on the cluster")
	case 6:
		return denied("IMPORT-ACCESS", "readable by the gateway's login on the cluster", "is not readable")
	case 7:
		return fault.New(fault.Validation, "import_changed", path+" changed while it was read").
			WithNext("register it again when nothing writes to it")
	case 8:
		return tree.Entry(path+"/"+strings.TrimPrefix(strings.TrimSpace(said), "./"),
			"is a link or a special file, or has a name or depth that a directory artifact cannot have")
	case 9:
		return tree.TooMany()
	}
	return fault.New(fault.Transport, "far_shell", fmt.Sprintf("hashing %s on the cluster ended with status %d: %s", path, out.Exit,
		fault.Clip(out.Stderr)))
}

// HashTreeInPlace hashes the files of a directory below root in place, on a host with a shell, in the order of their
// paths. It skips those in before, which an earlier call hashed, and calls each with every other one. The directory
// must have the state, that of [StatesInPlace], before and after.
func HashTreeInPlace(ctx context.Context, shell Shell, root, path, state string, before []tree.File, each func(tree.File)) ([]tree.File,
	error) {
	t := told{file: each}
	for _, f := range before {
		files.Watcher(ctx).Skip(f.Size)
	}
	out, err := hashPlace(ctx, shell, &t, state, len(before), "tree", root, path, strconv.Itoa(tree.MaxFiles), strconv.Itoa(tree.MaxDepth))
	if err == nil {
		err = placeFault(out, t.text.String(), path, "a directory")
	}
	if err != nil {
		return nil, err
	}
	list, now, err := tree.ParseSums(t.text.String(), path)
	if err == nil && now != state {
		err = tree.HalfSums(path)
	}
	return append(slices.Clip(before), list...), err
}

// LookInPlace returns the state of a file or directory below root, and about how many bytes it has.
func LookInPlace(ctx context.Context, shell Shell, root, path string) (state string, bytes int64, err error) {
	out, err := runPlace(ctx, shell, 4<<10, "look", root, path)
	if err == nil {
		err = placeFault(out, "", path, "a regular file or a directory")
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

// StatesInPlace returns the states of files and directories on a host with a shell, in their order. If one cannot be
// read, its state is the shell's error.
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
