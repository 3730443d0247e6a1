package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sums writes a line for each file below a folder: its SHA-256 and path, and "writable" if it can be opened for writing.
func sums(out, folder string) error {
	var text strings.Builder
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x %s", h.Sum(nil), path)
		if w, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			w.Close()
			text.WriteString(" writable")
		}
		text.WriteString("\n")
		return nil
	})
	if err != nil {
		return err
	}
	return put(out, text.String())
}
