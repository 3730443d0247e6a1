package rest

import "strconv"

// identity returns the id that Slurm's commands show: for a task that of its array, with the task's number.
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
