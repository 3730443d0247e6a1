package secrets_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"slurmgate/secrets"
	"slurmgate/secrets/corpus"
)

// Of the planted kinds at most five survive, whatever the seed. proves SEC-03
func TestPlanted(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 20261122, 0xfeed} {
		survived := map[string]string{}
		kinds := map[string]bool{}
		for _, p := range corpus.Planted(seed) {
			kinds[p.Kind] = true
			for _, text := range []string{p.Text, "before\n" + p.Text + "\nafter", "\t" + p.Text + " "} {
				if got := secrets.Default().Redact(text); strings.Contains(got, p.Core) {
					survived[p.Kind] = got
				}
			}
		}
		if len(kinds) < 70 {
			t.Fatalf("only %d kinds", len(kinds))
		}
		for kind, got := range survived {
			t.Logf("seed %d: survived: %s: %q", seed, kind, got)
		}
		if len(survived) > 5 {
			t.Errorf("seed %d: %d of %d kinds survive", seed, len(survived), len(kinds))
		}
	}
}

// Nothing is found in what laboratories write.
//
// no race: each of its millions of steps is like the one before
func TestHarmless(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5, 20261122, 0xfeed} {
		alarms, n := map[string]int{}, 0
		for _, h := range corpus.Harmless(seed, 10_000) {
			n++
			if x := secrets.Default().Find(h.Text); len(x) > 0 {
				if alarms[h.Kind]++; alarms[h.Kind] < 4 {
					t.Errorf("seed %d: %s: %s finds %q in %q", seed, h.Kind, x[0].Rule, h.Text[x[0].Start:x[0].End], h.Text)
				}
			}
		}
		if n < 10_000 {
			t.Fatalf("only %d texts", n)
		}
	}
}

// The parts of a text that was cut are as free of secrets as the whole.
func TestPart(t *testing.T) {
	s := secrets.Default()
	random := rand.New(rand.NewPCG(7, 7))
	for _, p := range corpus.Planted(9) {
		if strings.Contains(s.Redact("x\n"+p.Text+"\ny"), p.Core) || len(p.Core) < 12 {
			continue
		}
		text := "some words\n" + p.Text + "\nmore words"
		at := strings.Index(text, p.Core)
		if at < 0 {
			continue
		}
		for range 12 {
			cut := at + 1 + random.IntN(len(p.Core)-1)
			head, tail := s.Part(text, 0, cut), s.Part(text, cut, len(text))
			if k := cut - at; k >= 6 && strings.Contains(head, p.Core[:k]) {
				t.Errorf("%s: a head cut in the secret has %q", p.Kind, p.Core[:k])
			}
			if rest := p.Core[cut-at:]; len(rest) >= 6 && strings.Contains(tail, rest) {
				t.Errorf("%s: a tail cut in the secret has %q", p.Kind, rest)
			}
		}
	}
	for cut := range len("aé€𝄞") + 1 {
		if h := s.Part("aé€𝄞", 0, cut); !strings.HasPrefix("aé€𝄞", h) || strings.Contains(h, "\uFFFD") {
			t.Errorf("%d: %q", cut, h)
		}
	}
	if h, cut := s.Head("password=hunter2hunter2 and more", 14); h != "password="+secrets.Redacted || !cut {
		t.Errorf("%q", h)
	}
	if got := s.Tail("password=hunter2hunter2", 7); got != secrets.Redacted {
		t.Errorf("%q", got)
	}
}

// A mark in place of a secret is not a secret.
func TestRedactTwice(t *testing.T) {
	for _, p := range corpus.Planted(4) {
		once := secrets.Default().Redact(p.Text)
		if twice := secrets.Default().Redact(once); once != twice {
			t.Errorf("%s: %q, then %q", p.Kind, once, twice)
		}
	}
}
