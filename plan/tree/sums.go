package tree

import (
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// StatePrefix starts the state of a directory in place; a SHA-256 of its listing follows.
const StatePrefix = "tree "

// ParseSums reads the output of the script that hashes a folder in place: a line of SHA-256, size and path for each
// file, and then the folder's state. A path that a directory artifact cannot have is a fault that names it below
// folder.
func ParseSums(text, folder string) (list []File, state string, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if state = lines[len(lines)-1]; !strings.HasPrefix(state, StatePrefix) || !plan.IsSHA256(state[len(StatePrefix):]) {
		return nil, "", HalfSums(folder)
	}
	for _, line := range lines[:len(lines)-1] {
		f, ok := ParseSum1(line)
		if !ok {
			return nil, "", HalfSums(folder)
		}
		if msg := CheckPath(f.Path); msg != "" {
			return nil, "", Entry(folder+"/"+f.Path, "cannot be in a directory artifact: "+msg)
		}
		list = append(list, f)
	}
	return list, state, nil
}

// ParseSum1 reads the line of one file. It does not check the path.
func ParseSum1(line string) (f File, ok bool) {
	words := strings.SplitN(line, " ", 3)
	if len(words) != 3 || !plan.IsSHA256(words[0]) {
		return f, false
	}
	size, err := strconv.ParseInt(words[1], 10, 64)
	return File{SHA256: words[0], Size: size, Path: words[2]}, err == nil && size >= 0 && words[2] != ""
}

// SumLine returns the line of one file.
func SumLine(f File) string {
	return f.SHA256 + " " + strconv.FormatInt(f.Size, 10) + " " + f.Path + "\n"
}

// ParseSum reads the output of that script for one file: its SHA-256 and its state, which contains its size in bytes.
func ParseSum(text, path string) (sha256, state string, size int64, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 3 || !plan.IsSHA256(lines[0]) || lines[2] != "" {
		return "", "", 0, HalfSums(path)
	}
	words := strings.Fields(lines[1])
	if len(words) != 4 {
		return "", "", 0, HalfSums(path)
	}
	size, err = strconv.ParseInt(words[1], 10, 64)
	if err != nil || size < 0 {
		return "", "", 0, HalfSums(path)
	}
	return lines[0], lines[1], size, nil
}

// HalfSums returns the fault of a truncated answer about files in place.
func HalfSums(path string) error {
	return fault.New(fault.Transport, "far_shell", "hashing "+path+" on the cluster gave half an answer")
}
