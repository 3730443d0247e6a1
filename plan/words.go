package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"slurmgate/filetype"
	"slurmgate/visible"
)

// Limits of the words in a plan, in bytes.
const (
	MaxWord     = 128  // a name
	maxRole     = 64   // characters; a longer role has at most MaxWord bytes
	MaxLabel    = 256  // characters
	MaxRelPath  = 1024 // a relative path
	maxSegment  = 255  // one part of it, NAME_MAX of Linux filesystems
	maxUnixUser = 256  // LOGIN_NAME_MAX of Linux
)

// CheckWord reports what is wrong with a name; "" if nothing. It must be whitespace-strict (ABI-10): no blank at
// either end, no run of blanks, no control or invisible characters, valid UTF-8.
func CheckWord(s string) string {
	switch {
	case s == "":
		return "it is empty"
	case len(s) > MaxWord:
		return fmt.Sprintf("it is longer than %d bytes", MaxWord)
	}
	return checkShown(s)
}

// CheckRole reports what is wrong with a role; "" if nothing. It is whitespace-strict, with at most 64 characters or 128 bytes.
func CheckRole(s string) string {
	if s != "" && utf8.RuneCountInString(s) <= maxRole {
		return checkShown(s)
	}
	return CheckWord(s)
}

// CheckLabel reports what is wrong with a label; "" if nothing. It is whitespace-strict, with at most [MaxLabel] characters.
func CheckLabel(s string) string {
	switch {
	case s == "":
		return "it is empty"
	case utf8.RuneCountInString(s) > MaxLabel:
		return fmt.Sprintf("it is longer than %d characters", MaxLabel)
	}
	return checkShown(s)
}

// checkShown is checkBlanks, and also refuses invisible characters.
func checkShown(s string) string {
	msg := checkBlanks(s)
	if msg == "" && strings.ContainsFunc(s, visible.Hidden) {
		msg = "it contains an invisible character"
	}
	return msg
}

func checkBlanks(s string) string {
	if !utf8.ValidString(s) {
		return "it is not valid UTF-8"
	}
	for _, r := range s {
		switch {
		case r >= ' ' && r < 0x7f:
		case unicode.IsControl(r):
			return "it contains a control character"
		case unicode.IsSpace(r), unicode.Is(unicode.Zs, r), unicode.Is(unicode.Cf, r), r == '\u2028', r == '\u2029':
			return "it contains a blank that is not a plain space, or an invisible character"
		}
	}
	switch {
	case strings.HasPrefix(s, " "):
		return "it starts with a blank"
	case strings.HasSuffix(s, " "):
		return "it ends with a blank"
	case strings.Contains(s, "  "):
		return "it contains a run of blanks"
	}
	return ""
}

var unixUser = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$`)

// CheckUnixUser reports what is wrong with the name of a Unix user; "" if nothing. The name becomes a component of
// paths, an argument of Slurm's commands and the principal of a certificate; digits alone would be read as a uid.
func CheckUnixUser(s string) string {
	switch {
	case s == "":
		return "it is empty"
	case len(s) > maxUnixUser:
		return fmt.Sprintf("it is longer than %d bytes", maxUnixUser)
	case strings.Trim(s, "0123456789") == "":
		return "it consists of digits alone, which are read as a uid"
	case !unixUser.MatchString(s):
		return "it is not a user name of letters, digits and _ . @ + - that begins with a letter, a digit or _"
	}
	return ""
}

// CheckRelPath reports what is wrong with a workspace-relative path; "" if nothing. The path must start with dir +
// "/" and name something below it, in the one spelling that path cleaning does not change (ABI-12).
func CheckRelPath(s, dir string) string {
	if s == "" {
		return "it is empty"
	}
	if len(s) > MaxRelPath {
		return fmt.Sprintf("it is longer than %d bytes", MaxRelPath)
	}
	if msg := checkBlanks(s); msg != "" {
		return msg
	}
	switch {
	case strings.HasPrefix(s, "/"):
		return "it is an absolute path"
	case strings.Contains(s, `\`):
		return "it contains a backslash"
	}
	parts := strings.Split(s, "/")
	for _, p := range parts {
		switch {
		case p == "":
			return "it has an empty part"
		case p == "." || p == "..":
			return fmt.Sprintf("it contains %q", p)
		case len(p) > maxSegment:
			return fmt.Sprintf("a part is longer than %d bytes", maxSegment)
		case strings.TrimSpace(p) != p:
			return "a part starts or ends with a blank"
		}
	}
	if parts[0] != dir || len(parts) < 2 {
		return fmt.Sprintf("it does not start with %s/", dir)
	}
	return ""
}

// Word forms of Slurm's names and of ours. None can be mistaken for an option, and none contains a space: one
// space in an sbatch directive would start another option.
var (
	slurmName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	imageRef  = regexp.MustCompile(`^([a-z0-9][a-z0-9._-]{0,127}@)?sha256:[0-9a-f]{64}$`)
	ociRef    = regexp.MustCompile(`^(docker://)?([A-Za-z0-9][A-Za-z0-9._:-]*(/[A-Za-z0-9._:-]+)*)@(sha256:[0-9a-f]{64})$`)
	hex64     = regexp.MustCompile(`^[0-9a-f]{64}$`)
	typeName  = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,31}$`)
	hostPort  = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9a-fA-F:]+\]):([0-9]{1,5})$`)
)

// IsArtifactID reports whether s has the form of an artifact id.
func IsArtifactID(s string) bool { return isID("art_", s) }

// IsProjectID reports whether s has the form of a project id.
func IsProjectID(s string) bool { return isID("proj_", s) }

// IsRunID reports whether s has the form of a run id.
func IsRunID(s string) bool { return isID("run_", s) }

// isID checks a prefix and 26 digits. It uses no regular expression, as it runs for every text of every call.
func isID(prefix, s string) bool {
	digits, ok := strings.CutPrefix(s, prefix)
	return ok && len(digits) == 26 && strings.Trim(digits, crockfordDigits) == ""
}

// IsSHA256 reports whether s is 64 lower-case hex digits.
func IsSHA256(s string) bool { return hex64.MatchString(s) }

// SiteNameRule describes what [IsSiteName] accepts.
const SiteNameRule = "lower-case letters, digits and . _ -, at most 64"

var siteName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// IsSiteName reports whether s can be the name of a site.
func IsSiteName(s string) bool { return siteName.MatchString(s) }

// RegistryImage returns the name of an image of a registry without docker://: REPOSITORY@sha256:<64 hex>. Without docker://, only a
// repository with a slash is one: NAME@sha256:<64 hex> names an image of images.lock.yaml.
func RegistryImage(s string) (ref string, ok bool) {
	m := ociRef.FindStringSubmatch(s)
	if m == nil || len(s) > 512 || m[1] == "" && m[3] == "" {
		return "", false
	}
	return m[2] + "@" + m[4], true
}

// IsSlurmName reports whether s can be a partition, account or QOS.
func IsSlurmName(s string) bool { return slurmName.MatchString(s) }

// IsTypeName reports whether s has the form of an artifact type.
func IsTypeName(s string) bool { return typeName.MatchString(s) }

// IsEnvName reports whether s can be the name of an environment variable of a program.
func IsEnvName(s string) bool { return envName.MatchString(s) }

// IsHostPort reports whether s is host:port.
func IsHostPort(s string) bool {
	m := hostPort.FindStringSubmatch(s)
	return m != nil && IsPort(m[2])
}

// IsPort reports whether s is the number of a port.
func IsPort(s string) bool {
	port, err := strconv.Atoi(s)
	return err == nil && port >= 1 && port <= 65535
}

// Directory is the type of an artifact that is a folder: its object is a manifest that names the files and their digests.
const Directory = filetype.Directory

// UnknownType is the type of bytes with unknown content.
const UnknownType = filetype.Unknown

// FoldRole returns the common form of roles that differ only in case. Roles become keys of JSON objects, and many
// readers of JSON treat such keys as equal.
func FoldRole(role string) string { return strings.ToLower(strings.ToUpper(role)) }

// rejectedPrefix starts the roles of refused outputs, whose bytes the gateway stores.
const rejectedPrefix = "rejected:"

// Rejected returns the role of a refused output.
func Rejected(role string) string { return rejectedPrefix + role }

// WasRejected reports whether a role is that of a refused output.
func WasRejected(role string) bool { return strings.HasPrefix(role, rejectedPrefix) }

// MadeByGateway reports whether the gateway produces the artifact with a role: no pack may declare such a role.
func MadeByGateway(role string) bool {
	return slices.Contains(ReservedRoles(), role) || WasRejected(role)
}

// ReservedRoles returns the roles that the gateway produces and that may not be declared (ABI-16).
func ReservedRoles() []string { return []string{"log", "stdout", "stderr", "slurm_script"} }
