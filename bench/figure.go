package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

var errMissed = errors.New("a figure misses its target")

// figures prints what was measured and remembers which figures missed their target.
type figures struct {
	w      io.Writer
	missed []string
}

// print prints a figure. params are "key=value" words; the target is "<=2", ">=0.85", "=0", or empty for a figure that only explains.
func (f *figures) print(name string, value float64, unit, target string, params ...string) {
	words := append(append([]string{"name=" + name}, params...), "value="+number(value), "unit="+unit)
	if target != "" {
		words = append(words, "target="+target)
		if !meets(value, target) {
			words = append(words, "MISSED")
			f.missed = append(f.missed, name)
		}
	}
	fmt.Fprintln(f.w, strings.Join(words, " "))
}

func (f *figures) err() error {
	if len(f.missed) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", errMissed, strings.Join(f.missed, ", "))
}

func meets(value float64, target string) bool {
	limit, err := strconv.ParseFloat(strings.TrimLeft(target, "<>="), 64)
	switch {
	case err != nil:
		return false
	case strings.HasPrefix(target, "<="):
		return value <= limit
	case strings.HasPrefix(target, ">="):
		return value >= limit
	}
	return value == limit
}

// number prints three significant digits.
func number(v float64) string {
	switch {
	case v == float64(int64(v)):
		return strconv.FormatInt(int64(v), 10)
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// quantile returns the smallest measured value that at least a share q of all values does not exceed.
func quantile[T float64 | time.Duration](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func median[T float64 | time.Duration](values []T) T { return quantile(values, 0.5) }

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
