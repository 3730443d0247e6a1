package sftp

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/remote/transfer"
	"slurmgate/staging"
)

//go:embed images.sh
var imageScript string

// Folder is a folder of large files on the far side that never change: an image store. It is safe for concurrent use.
type Folder struct {
	shell    *shelled // nil: SFTP alone
	data     string   // the folder as the SFTP server sees it
	channels *channels
	pool     *transfer.Pool
}

// NewFolder opens the folder that a shell sees as login and an SFTP server as data. Without a shell, login is not used.
// pool carries the images to the server; the caller closes it.
func NewFolder(shell Shell, login string, server Data, data string, pool *transfer.Pool) *Folder {
	f := &Folder{data: data, channels: newChannels(server), pool: pool}
	if shell != nil {
		f.shell = newShelled(Config{LoginRunsDir: login, Shell: shell})
	}
	return f
}

// Close closes the SFTP channels.
func (f *Folder) Close() { f.channels.close() }

// Check returns the SHA-256 of a file and its state. An empty state means that a state could not be trusted to show a
// change. If the file has the known state it is not read, and sum is empty. A missing file is a NotFound fault.
func (f *Folder) Check(ctx context.Context, name, known string) (sum, state string, err error) {
	if f.shell == nil {
		return f.readAll(ctx, name, known)
	}
	out, err := f.shell.run(ctx, call{script: imageScript, name: "check", args: []string{name, known}})
	if r, is := err.(*refusal); is && r.exit == exitNoControl {
		return "", "", fault.New(fault.NotFound, "file_missing", "the login node has no "+name+" in "+f.shell.cfg.LoginRunsDir)
	}
	if err != nil {
		return "", "", f.fault(name+" cannot be read", err)
	}
	text := strings.TrimSuffix(string(out), "\n")
	if text == "same" {
		return "", known, nil
	}
	state, sum, ok := strings.Cut(text, " ")
	if !ok || len(sum) != 64 {
		return "", "", fault.New(fault.Transport, "far_shell", "the script on the login node gave half an answer")
	}
	return sum, strings.TrimPrefix(state, "-"), nil
}

// addingPrefix begins the temporary name of an image that is being sent.
const addingPrefix = ".adding-"

// Put sends a file and gives it its name when it is complete, has the checksum, and is durable. A later call continues
// an interrupted transfer.
func (f *Folder) Put(ctx context.Context, name string, src io.ReaderAt, size int64, sum string) error {
	msg := name + " cannot be sent"
	temp := addingPrefix + name
	var err error
	if f.shell != nil {
		_, err = f.shell.run(ctx, call{script: imageScript, name: "prepare", args: []string{leftoverSeconds}, writes: true})
	} else {
		err = f.channels.do(ctx, msg, func(c *sftp.Client) error {
			if err := c.MkdirAll(f.data); err != nil {
				return err
			}
			return sweepFolder(c, f.data)
		})
	}
	if err != nil {
		return f.fault(msg, err)
	}
	file := transfer.File{Path: path.Join(f.data, temp), Size: size, SHA256: sum, Name: name, ReadBack: f.shell == nil}
	if _, err := f.pool.Put(ctx, file, src); err != nil {
		return err
	}
	if f.shell == nil {
		return f.placeAlone(ctx, temp, name)
	}
	_, err = f.shell.run(ctx, call{script: imageScript, name: "place", args: []string{temp, name, strconv.FormatInt(size, 10), sum},
		writes: true})
	return f.fault(msg, err)
}

// Names returns the names of the images with their sizes in bytes. A missing folder has none.
func (f *Folder) Names(ctx context.Context) (map[string]int64, error) {
	if f.shell == nil {
		return f.namesAlone(ctx)
	}
	out, err := f.shell.run(ctx, call{script: imageScript, name: "names", limit: maxAnswer})
	if r, is := err.(*refusal); is && r.exit == exitNoControl {
		return nil, nil
	}
	if err != nil {
		return nil, f.fault("the folder cannot be listed", err)
	}
	list, whole := strings.CutSuffix(string(out), "end\n")
	names := map[string]int64{}
	for line := range strings.Lines(list) {
		var size int64
		var name string
		if _, err := fmt.Sscan(line, &size, &name); err != nil {
			whole = false
		}
		names[name] = size
	}
	if !whole {
		return nil, fault.New(fault.Transport, "far_shell", "the script on the login node gave half an answer")
	}
	return names, nil
}

// Head reads the first bytes of a file, at most limit.
func (f *Folder) Head(ctx context.Context, name string, limit int) (head []byte, err error) {
	err = f.channels.do(ctx, name+" cannot be read", func(c *sftp.Client) error {
		head, err = readFile(c, path.Join(f.data, name), int64(limit))
		return err
	})
	return head, err
}

// fault converts an error of a script or of SFTP to a fault.
func (f *Folder) fault(msg string, err error) error {
	r, is := err.(*refusal)
	switch {
	case !is:
		return staging.Failed(msg, err)
	case r.exit == exitForeign:
		return fault.New(fault.Validation, "file_irregular", msg+": "+fault.Clip(r.text))
	case r.exit == exitAway:
		return fault.New(fault.Transport, "folder_unavailable", msg+": "+fault.Clip(r.text)).
			WithNext("check that the shared filesystem is mounted on the login node")
	}
	return f.shell.fault(msg, "", 0, "", err)
}
