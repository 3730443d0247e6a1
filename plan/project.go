package plan

import (
	"slices"
	"strconv"
	"strings"
)

// UserProject names the own project of a user in site files, tokens and calls: which one depends on the user. Names
// that begin with { are reserved for such projects, so no other project can have one.
const UserProject = "{user}"

// ProjectID derives the id of a project from its name.
func ProjectID(name string) string { return id("proj_", "project="+name+"|") }

// userMark is the first character of the ids of users' own projects. An id that is derived from a name begins with 0
// to 7, because its 26 characters hold 128 bits, and so does a ULID. So an id shows which kind of project it is.
const userMark = "Z"

// UserProjectID derives the id of a user's own project from the user's name. n is 1 for the first user of the name, 2
// for another person who got the name later.
func UserProjectID(user string, n int) string {
	return "proj_" + userMark + id("", "user="+user+"|n="+strconv.Itoa(n)+"|")[1:]
}

// IsUserProject reports whether an id is that of a user's own project.
func IsUserProject(id string) bool { return strings.HasPrefix(id, "proj_"+userMark) && IsProjectID(id) }

// CheckProject reports what is wrong with the name or id of a project that several callers may have; "" if nothing.
// It is an id, or a name without leading, trailing or double spaces that is not * (every project, in a grant), does
// not look like an id and is not reserved. Every face and file uses this rule.
func CheckProject(s string) string {
	switch {
	case IsUserProject(s):
		return "it is the id of a user's own project, which no one else can be given; " + UserProject + " stands for the project of each user"
	case IsProjectID(s):
		return ""
	case s == "*":
		return "* means every project"
	case strings.HasPrefix(s, "{"):
		return "names that begin with { are reserved; " + UserProject + " stands for the project of each user's own"
	case strings.HasPrefix(s, "proj_"):
		return "it begins with proj_ and is not a project id (proj_ and 26 characters)"
	}
	return CheckWord(s)
}

// CheckProjects is [CheckProject], but also accepts {user}: for settings about the projects of all users.
func CheckProjects(s string) string {
	if s == UserProject {
		return ""
	}
	return CheckProject(s)
}

// ProjectOf returns the id of a project named as [CheckProject] allows; {user} is returned unchanged.
func ProjectOf(s string) string {
	if s == UserProject || IsProjectID(s) {
		return s
	}
	return ProjectID(s)
}

// InProjects reports whether a project is among those that a setting lists by id, with * for every one and {user} for
// every user's own.
func InProjects(list []string, id string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, id) || IsUserProject(id) && slices.Contains(list, UserProject)
}
