package secrets

import "slices"

// words finds many words in one pass over a text, in any case of ASCII letters (Aho and Corasick). A text without any
// of them costs two table accesses a byte.
type words struct {
	class   [256]uint8 // of a byte; letters of both cases share one
	classes int
	next    []uint16  // state*classes + class → state
	found   [][]int32 // of a state: the words that end there
}

// newWords builds the table. A word is found under its index.
func newWords(list []string) *words {
	w := &words{classes: 1} // class 0: a byte that no word has
	for _, word := range list {
		for i := range len(word) {
			if c := lower(word[i]); w.class[c] == 0 {
				w.class[c] = uint8(w.classes)
				w.classes++
			}
		}
	}
	for c := 'a'; c <= 'z'; c++ {
		w.class[c-'a'+'A'] = w.class[c]
	}
	w.grow()
	for i, word := range list {
		state := uint16(0)
		for k := range len(word) {
			at := int(state)*w.classes + int(w.class[lower(word[k])])
			if w.next[at] == 0 {
				w.next[at] = w.grow()
			}
			state = w.next[at]
		}
		w.found[state] = append(w.found[state], int32(i))
	}
	w.link()
	return w
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// grow adds a state.
func (w *words) grow() uint16 {
	w.next = append(w.next, make([]uint16, w.classes)...)
	w.found = append(w.found, nil)
	return uint16(len(w.found) - 1)
}

// link completes the tree to an automaton: a state without a branch for a class takes that of the longest proper
// suffix.
func (w *words) link() {
	suffix := make([]uint16, len(w.found))
	var queue []uint16
	for _, s := range w.next[:w.classes] {
		if s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		w.found[state] = slices.Concat(w.found[state], w.found[suffix[state]])
		for c := range w.classes {
			branch := &w.next[int(state)*w.classes+c]
			other := w.next[int(suffix[state])*w.classes+c]
			if *branch == 0 {
				*branch = other
				continue
			}
			suffix[*branch] = other
			queue = append(queue, *branch)
		}
	}
}

// hit is a word in a text: word is its index, end the byte after it.
type hit struct{ word, end int }

// scan calls on for every word and run for every stretch of at least longRun bytes of base64, in order of their ends, until either returns
// false.
func scan[T string | []byte](w *words, text T, on func(hit) bool, run func(from, to int) bool) {
	state, start := 0, 0
	for i := range len(text) {
		c := text[i]
		state = int(w.next[state*w.classes+int(w.class[c])])
		for _, word := range w.found[state] {
			if !on(hit{int(word), i + 1}) {
				return
			}
		}
		if !base64Byte[c] {
			if i-start >= longRun && !run(start, i) {
				return
			}
			start = i + 1
		}
	}
	if len(text)-start >= longRun {
		run(start, len(text))
	}
}

// longRun is the shortest stretch of base64 that may hide a text.
const longRun = 20

var base64Byte = func() (is [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-=" {
		is[c] = true
	}
	return is
}()
