package signer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"slurmgate/fault"
)

// secret checks that only this user can read a file or replace it. Root always can.
func secret(path string) error {
	if err := unalterable(path); err != nil {
		return err
	}
	st, err := os.Lstat(path)
	switch {
	case err != nil:
		return fault.Wrap(fault.Validation, "ca_key", "the CA's key cannot be read", err)
	case !st.Mode().IsRegular():
		return fault.New(fault.Validation, "ca_key", "the CA's key "+path+" is not a regular file")
	case ownerOf(st) != os.Geteuid():
		return fault.New(fault.Validation, "ca_key", fmt.Sprintf("the CA's key %s belongs to user id %d; the signer runs as user id %d", path,
			ownerOf(st), os.Geteuid())).WithNext(fmt.Sprintf("chown %d %s", os.Geteuid(), path))
	case st.Mode().Perm()&0o077 != 0:
		return fault.New(fault.Validation, "ca_key", fmt.Sprintf("others than the signer's user can read the CA's key %s (mode %04o)", path,
			st.Mode().Perm())).WithNext("chmod 600 " + path + "; if others may have read it, make another key: they can log in as everybody")
	}
	return nil
}

// unalterable makes sure that only root and this user can change a file, or a folder above it.
func unalterable(path string) error {
	for at := path; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		if err != nil {
			return fault.Wrap(fault.Validation, "signer_file", at+" cannot be examined", err)
		}
		sticky := st.IsDir() && at != path && st.Mode()&fs.ModeSticky != 0
		switch owner := ownerOf(st); {
		case owner != 0 && owner != os.Geteuid():
			return fault.New(fault.Validation, "signer_file", fmt.Sprintf("%s belongs to user id %d, who could change what the signer does",
				at, owner)).
				WithNext("chown root " + at)
		case st.Mode().Perm()&0o022 != 0 && !sticky:
			return fault.New(fault.Validation, "signer_file", fmt.Sprintf("others can write to %s (mode %04o) and change what the signer does", at,
				st.Mode().Perm())).WithNext("chmod go-w " + at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

func ownerOf(st fs.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}
