package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/toolpack"
)

// maxNamed is how many things of a list a warning names.
const maxNamed = 5

// fileUse is the use of a file as an input in a row of a sheet.
type fileUse struct {
	line          int
	sample, input string
}

// rowWarnings warns of probable mistakes in the rows of a sheet: a sample in several rows, which become several runs;
// one file for several samples, where most rows have a file that no other row has or the rows ask for the same run;
// one file twice in a row, as both mates. samples is the number of samples.
func rowWarnings(rows []sheetArgs, inputs []toolpack.InputInfo) (samples int, warnings []string) {
	lines, uses, own := map[string][]int{}, map[string][]fileUse{}, map[string]int{}
	var order, files []string
	for _, r := range rows {
		if lines[r.sample] == nil {
			order = append(order, r.sample)
		}
		lines[r.sample] = append(lines[r.sample], r.line)
		for _, in := range inputs {
			for _, id := range filesIn(r.args, in.Param) {
				if uses[id] == nil {
					files = append(files, id)
				}
				if !slices.ContainsFunc(uses[id], func(u fileUse) bool { return u.input == in.Param }) {
					own[in.Param]++
				}
				uses[id] = append(uses[id], fileUse{r.line, r.sample, in.Param})
			}
		}
	}
	warnings = []string{}
	var lanes, shared, twice []string
	twins := twinLines(rows)
	for _, sample := range order {
		if n := lines[sample]; len(n) > 1 {
			lanes = append(lanes, fmt.Sprintf("%q (rows %s)", sample, some(n)))
		}
	}
	for _, id := range files {
		of, each := map[string]bool{}, false
		var at []int
		for i, u := range uses[id] {
			each = each || 2*own[u.input] >= len(rows)
			if of[u.sample] = true; !slices.Contains(at, u.line) {
				at = append(at, u.line)
			}
			if j := slices.IndexFunc(uses[id][:i], func(o fileUse) bool { return o.line == u.line }); j >= 0 {
				twice = append(twice, fmt.Sprintf("%s as %s and %s of row %d", id, uses[id][j].input, u.input, u.line))
			}
		}
		if len(of) > 1 && (each && len(at) < len(rows) || slices.ContainsFunc(at, func(n int) bool { return twins[n] })) {
			shared = append(shared, fmt.Sprintf("%s (rows %s)", id, some(at)))
		}
	}
	for _, w := range []struct {
		found []string
		text  string
	}{{lanes, "samples in several rows, each of which is a run with separate results: %s. If the rows are lanes of a sample, " +
		gather(inputs)},
		{shared, "one file for several samples: %s"}, {twice, "one file for two inputs of a row, or twice for one: %s"}} {
		if len(w.found) > 0 {
			warnings = append(warnings, fmt.Sprintf(w.text, some(w.found)))
		}
	}
	return len(order), warnings
}

// Warnings returns the warnings of [rowWarnings] for a sheet whose cells name artifacts.
func (s Sheet) Warnings(place func(column string) (ColumnPlace, *fault.Problem), inputs []toolpack.InputInfo) (samples int,
	warnings []string) {
	rows, _ := s.requests(place, nil)
	return rowWarnings(rows, inputs)
}

// gather advises how the files of a sample's lanes become the input of one run.
func gather(inputs []toolpack.InputInfo) string {
	for _, in := range inputs {
		if in.List != nil && (in.List.Max == 0 || in.List.Max > 1) {
			return "write their files into one cell of " + in.Param + ", separated by semicolons"
		}
	}
	return "join their files first (cat L001.fastq.gz L002.fastq.gz > all.fastq.gz) and give the sample one row"
}

// twinLines returns the lines of rows that ask for the same as a row of another sample. Arguments that only name the
// row are ignored.
func twinLines(rows []sheetArgs) map[int]bool {
	first, lines := map[string]sheetArgs{}, map[int]bool{}
	for _, r := range rows {
		var doc map[string]json.RawMessage
		if json.Unmarshal(r.args, &doc) != nil {
			continue
		}
		for _, own := range []string{sampleColumn, labelColumn, tagsColumn} {
			delete(doc, own)
		}
		key, _ := json.Marshal(doc) // decoded above
		if o, ok := first[string(key)]; !ok {
			first[string(key)] = r
		} else if o.sample != r.sample {
			lines[o.line], lines[r.line] = true, true
		}
	}
	return lines
}

// filesIn lists the artifacts that an argument names. References and outputs of runs are meant for several rows.
func filesIn(args json.RawMessage, param string) (ids []string) {
	var doc map[string]json.RawMessage
	var one string
	var list []string
	if json.Unmarshal(args, &doc) != nil {
		return nil
	}
	if json.Unmarshal(doc[param], &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(doc[param], &list) != nil {
		return nil
	}
	return slices.DeleteFunc(list, func(id string) bool { return !strings.HasPrefix(id, "art_") })
}

// some names the first few of a list and the number of others.
func some[T any](list []T) string {
	var parts []string
	for _, x := range list[:min(len(list), maxNamed)] {
		parts = append(parts, fmt.Sprint(x))
	}
	if more := len(list) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}
