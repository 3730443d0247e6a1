package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
)

// Words and files that a user names on the command line.

// checkWords refuses words that are not UTF-8: JSON cannot carry them, so another name or value would arrive.
func checkWords(words []string) error {
	for _, w := range words {
		if !utf8.ValidString(w) {
			return fault.New(fault.Validation, "not_utf8", fmt.Sprintf("the argument %q is not valid UTF-8", w)).
				WithNext("type it in UTF-8; if it names a file, rename the file")
		}
	}
	return nil
}

// checkName refuses the name of a file that JSON cannot carry or that a terminal or a log would show as something else.
func checkName(path string) error {
	msg := ""
	for _, r := range path {
		if unicode.IsControl(r) {
			msg = "the file name %q contains control characters"
		}
	}
	if !utf8.ValidString(path) {
		msg = "the file name %q is not valid UTF-8"
	}
	if msg == "" {
		return nil
	}
	return fault.New(fault.Validation, "file_name", fmt.Sprintf(msg, path)).WithNext("rename the file, or the folder it is in")
}

// checkPaths checks the names of all files among the arguments and options. They are absolute by now.
func checkPaths(k *kong.Context) error {
	values := []*kong.Value{}
	for _, f := range k.Flags() {
		values = append(values, f.Value)
	}
	if n := k.Selected(); n != nil {
		values = append(values, n.Positional...)
	}
	for _, v := range values {
		if v.Tag.Type == "path" && v.Target.Kind() == reflect.String {
			if err := checkName(v.Target.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// absolute returns the absolute path of a file, as the gateway needs it.
func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return abs, checkName(abs)
}

// openFile opens a regular file for reading. It does not wait for the other end of a named pipe.
func openFile(path string) (*os.File, error) {
	refuse := func(kind fault.Kind, msg string) error {
		return fault.New(kind, "file_unreadable", fmt.Sprintf("%q %s", path, msg))
	}
	if _, err := absolute(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.NotFound, "file_not_found", fmt.Sprintf("there is no file %q", path)).
			WithNext("check the spelling of the path")
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return nil, refuse(fault.Validation, "is a socket or a device, not a regular file")
	case errors.Is(err, fs.ErrPermission):
		return nil, refuse(fault.Validation, "is not readable for you")
	case err != nil:
		return nil, fault.Wrap(fault.Transport, "file_unreadable", fmt.Sprintf("%q cannot be opened", path), err)
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = refuse(fault.Validation, "is "+files.Kind(st.Mode)+", not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// StandardInput returns standard input until ctx ends. A read that is waiting then returns an error.
func StandardInput(ctx context.Context) io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() {
		w.CloseWithError(fault.New(fault.Canceled, "interrupted", "interrupted while reading standard input; nothing was done with it"))
	})
	go func() {
		_, err := io.Copy(w, os.Stdin)
		w.CloseWithError(err)
	}()
	return r
}
