package rest

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"slurmgate/fault"
)

// maxHostnames bounds the names in an expanded list.
const maxHostnames = 100_000

// Hostnames expands a list of node names as Slurm writes it, e.g. n[1-3,7]. It asks no daemon. A name with more than
// one bracket is refused.
func (s *Slurm) Hostnames(_ context.Context, list string) (names []string, err error) {
	bad := fault.New(fault.Validation, "NODE-LIST", fmt.Sprintf("%q is not a list of node names, such as n1,n[3-7]", fault.Clip(list)))
	for list != "" {
		end, open := len(list), strings.IndexByte(list, '[')
		if comma := strings.IndexByte(list, ','); comma >= 0 && (open < 0 || comma < open) {
			end = comma
		} else if open >= 0 {
			shut := strings.IndexByte(list, ']')
			if shut < open {
				return nil, bad
			}
			if end = shut + 1; end < len(list) && list[end] != ',' {
				return nil, bad
			}
		}
		more, ok := hosts(list[:end])
		if names = append(names, more...); !ok || len(names) > maxHostnames {
			return nil, bad
		}
		if list = list[end:]; list == "," {
			return nil, bad
		}
		list = strings.TrimPrefix(list, ",")
	}
	if len(names) == 0 {
		return nil, bad
	}
	return names, nil
}

// hosts expands one name, with or without a bracket at its end.
func hosts(name string) (names []string, ok bool) {
	prefix, ranges, bracket := strings.Cut(name, "[")
	if strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" || prefix == "" {
		return nil, false
	}
	if !bracket {
		return []string{name}, true
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(ranges, "]"), ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 31)
		to, err2 := strconv.ParseUint(last, 10, 31)
		if err1 != nil || err2 != nil || to < from || to-from+uint64(len(names)) >= maxHostnames {
			return nil, false
		}
		for n := from; n <= to; n++ {
			names = append(names, fmt.Sprintf("%s%0*d", prefix, len(first), n))
		}
	}
	return names, true
}
