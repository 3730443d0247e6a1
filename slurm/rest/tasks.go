package rest

import (
	"errors"
	"strconv"
	"strings"
)

// identity is the id that Slurm's commands show: that of the array, with the task, for a task.
func identity(id, array, task number) (string, *int) {
	var at *int
	if array.set && array.n > 0 {
		id = array
		if task.set && task.n >= 0 && task.n < 1<<31 {
			n := int(task.n)
			at = &n
		}
	}
	if !id.set || id.n <= 0 || id.n > 1<<32 {
		return "", nil
	}
	return strconv.FormatInt(id.n, 10), at
}

// tasksOf reads the tasks of an array that have no record of their own: 1-3,7,20-40:5%2. Slurm ends a list that is too long with "...".
func tasksOf(list string) (tasks []int, ok bool) {
	list, _, _ = strings.Cut(list, "%")
	for part := range strings.SplitSeq(list, ",") {
		span, by, stepped := strings.Cut(part, ":")
		first, last, ranged := strings.Cut(span, "-")
		if !ranged {
			last = first
		}
		if !stepped {
			by = "1"
		}
		from, err1 := strconv.ParseUint(first, 10, 31)
		to, err2 := strconv.ParseUint(last, 10, 31)
		step, err3 := strconv.ParseUint(by, 10, 31)
		if errors.Join(err1, err2, err3) != nil || step == 0 || to < from || (to-from)/step+uint64(len(tasks)) >= maxTasks {
			return nil, false
		}
		for n := from; n <= to; n += step {
			tasks = append(tasks, int(n))
		}
	}
	return tasks, true
}
