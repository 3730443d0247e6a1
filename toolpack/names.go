package toolpack

import (
	"regexp"
	"slices"
	"strings"

	"slurmgate/plan"
)

// Download names: an output may be named by the label of an input. The name belongs to the request, not to the run: the same bytes under
// two labels are one run, and each of its askers sees its own names.
//
//	declaredOutputs: [{role: stats, type: JSON, label: stats, srcRelpath: out/stats.json, downloadName: "{label:reads}.stats.json"}]

var (
	labelIn      = regexp.MustCompile(`\{label(?::([^{}]*))?\}`)
	downloadForm = regexp.MustCompile(`^[A-Za-z0-9._+-]*$`)
)

const downloadRule = "a file name of letters, digits and . _ + -, with {label} or {label:ROLE} for the label of an input"

// checkDownloadNames checks the names of the outputs.
func (d *draft) checkDownloadNames(at string, o output) {
	if o.DownloadName == "" {
		return
	}
	if rest := labelIn.ReplaceAllString(o.DownloadName, ""); !downloadForm.MatchString(rest) || len(o.DownloadName) > 128 {
		d.Add("DOWNLOAD-NAME", at, downloadRule, `"`+clip(o.DownloadName)+`" does not have the right form`, "")
		return
	}
	for _, m := range labelIn.FindAllStringSubmatch(o.DownloadName, -1) {
		switch {
		case m[1] == "" && len(d.def.Inputs) != 1:
			d.Add("DOWNLOAD-NAME", at, "{label} alone where the tool has one input", "the tool has several inputs, or none",
				"write {label:ROLE}, with the role of an input")
		case m[1] != "" && !slices.ContainsFunc(d.def.Inputs, func(in input) bool { return in.Role == m[1] }):
			var roles []string
			for _, in := range d.def.Inputs {
				roles = append(roles, in.Role)
			}
			d.Add("DOWNLOAD-NAME", at, "{label:ROLE}, where ROLE is one of the inputs", `there is no input "`+clip(m[1])+`"`,
				plan.DidYouMean(m[1], roles))
		case slices.ContainsFunc(d.def.Inputs, func(in input) bool { return in.List != nil && (m[1] == "" || in.Role == m[1]) }):
			d.Add("DOWNLOAD-NAME", at, "the label of an input that is one artifact", "the input is a list, which has many labels",
				"name another input, or leave downloadName out")
		}
	}
}

// names returns the download names of a call by the roles of its outputs. It has no name where the pack gives none,
// where its input is absent, and where the label makes no file name.
func (p *Pack) names(g takes) map[string]string {
	label := func(role string) string {
		for _, one := range g.list {
			if one.in.Role == role || role == "" {
				return one.info.Label
			}
		}
		return ""
	}
	var out map[string]string
	for _, o := range p.def.Outputs {
		complete := o.DownloadName != ""
		name := labelIn.ReplaceAllStringFunc(o.DownloadName, func(s string) string {
			l := label(labelIn.FindStringSubmatch(s)[1])
			complete = complete && fileLabel.MatchString(l)
			return l
		})
		if complete && fileLabel.MatchString(name) && !strings.HasSuffix(name, ".") {
			if out == nil {
				out = map[string]string{}
			}
			out[o.Role] = name
		}
	}
	return out
}
