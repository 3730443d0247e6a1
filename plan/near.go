package plan

import "strings"

// DidYouMean returns the hint for a misspelt word, or "" when no known word is near.
func DidYouMean(word string, known []string) string {
	if near := Nearest(word, known); near != "" {
		return `did you mean "` + near + `"?`
	}
	return ""
}

// Suggestion returns the question that ends a message about a misspelt word; near is the word that [Nearest] found. It is empty if near is.
func Suggestion(near string) string {
	if near == "" {
		return ""
	}
	return "; did you mean " + near + "?"
}

// Nearest returns the known word that a misspelt one most likely stands for, empty if none is near: at most one edit
// away for a short word, two for a long one. Case, _ and - are ignored.
func Nearest(word string, known []string) (nearest string) {
	if len(word) > 64 {
		return ""
	}
	least := 2
	if len(word) > 4 {
		least = 3
	}
	for _, k := range known {
		if n := edits(Fold(word), Fold(k)); n < least {
			nearest, least = k, n
		}
	}
	return nearest
}

var separators = strings.NewReplacer("_", "", "-", "")

// Fold returns the common form of the spellings of one name.
func Fold(s string) string { return strings.ToLower(separators.Replace(s)) }

// edits counts the letters to insert, remove, replace or swap with their neighbour to turn a into b.
func edits(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := range len(a) {
		before, last, now := rows[i%3], rows[(i+1)%3], rows[(i+2)%3]
		now[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			now[j+1] = min(last[j]+cost, last[j+1]+1, now[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}
