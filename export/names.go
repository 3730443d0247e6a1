package export

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"slurmgate/visible"
)

const (
	maxName = 1024 // bytes
	maxPart = 255  // NAME_MAX of Linux filesystems
)

// checkName reports what is wrong with a file's name in an archive; "" if nothing. A name that passes stays below the folder that it is
// unpacked into, on every system.
func checkName(name string) string {
	switch {
	case name == "":
		return "the name is empty"
	case len(name) > maxName:
		return fmt.Sprintf("the name is longer than %d bytes", maxName)
	case !utf8.ValidString(name):
		return "the name is not UTF-8"
	case strings.HasPrefix(name, "/"):
		return "the name is an absolute path"
	case strings.Contains(name, `\`):
		return "the name contains a backslash"
	case strings.ContainsFunc(name, visible.Hidden):
		return "the name contains a control character or one that is not visible"
	case len(name) > 1 && name[1] == ':':
		return "the name begins with a drive letter"
	}
	for _, part := range strings.Split(name, "/") {
		switch {
		case part == "":
			return "the name has an empty part"
		case part == "." || part == "..":
			return fmt.Sprintf("the name contains %q", part)
		case len(part) > maxPart:
			return fmt.Sprintf("a part of the name is longer than %d bytes", maxPart)
		}
	}
	return ""
}
