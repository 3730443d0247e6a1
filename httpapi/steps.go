package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"slurmgate/fault"
)

// requests returns the routes of steps that are the operation of no route, or need another route than their operation's first.
func requests() []Route {
	return []Route{
		{Method: "GET", Path: "/v1/tools", Operation: "tool.list"},
		{Method: "GET", Path: "/v1/registry", Operation: "tool.show", Omits: []string{"tool_id"}},
		{Method: "GET", Path: "/v1/artifacts/{artifact_id}/content", Operation: "artifact save"},
		{Method: "GET", Path: "/v1/artifacts/{artifact_id}/preview/image", Operation: "artifact save preview"},
	}
}

// Words returns what writes steps as requests. line writes the command lines of those that HTTP has no request for.
func Words(line func(fault.Step) string) func([]fault.Step) string {
	return fault.Words(func(s fault.Step) string {
		if text, ok := request(s); ok {
			return text
		}
		return "at the gateway's shell: " + line(s)
	})
}

// request writes a step as a request. A path has the names of missing arguments in capitals. ok is false for a command of the shell alone.
func request(s fault.Step) (text string, ok bool) {
	all := append(requests(), Routes()...)
	i := slices.IndexFunc(all, func(r Route) bool { return r.Operation == s.Verb })
	if i < 0 {
		return "POST /v1/tools/" + s.Verb + ":run with args " + s.JSON(), strings.Contains(s.Verb, ".")
	}
	path, query, body := all[i].Path, url.Values{}, fault.Do("")
	if m := pathArgument.FindStringSubmatch(path); m != nil {
		value := strings.ToUpper(m[1])
		if v, has := s.Args[m[1]]; has {
			value = url.PathEscape(fmt.Sprint(v))
		}
		path = strings.Replace(path, m[0], value, 1)
	}
	for name, v := range s.Args {
		switch {
		case strings.Contains(all[i].Path, "{"+name+"}"), slices.Contains(all[i].Omits, name):
		case all[i].Method == http.MethodPost:
			body.Args[name] = v
		default:
			query.Set(name, fmt.Sprint(v))
		}
	}
	if len(body.Args) > 0 {
		return all[i].Method + " " + path + " with " + body.JSON(), true
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return all[i].Method + " " + path, true
}
