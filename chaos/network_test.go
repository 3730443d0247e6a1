package main

import (
	"maps"
	"testing"
)

// What nft counted is read from both hosts' sets, by port.
func TestDropped(t *testing.T) {
	const text = `table inet chaos {
	set lost {
		type inet_service
		size 65535
		flags dynamic
		elements = { 60034 counter packets 2 bytes 120, 60164 counter packets 5 bytes 278 }
	}
}
table inet chaos {
	set lost {
		elements = { 60034 counter packets 1 bytes 60 }
	}
}
`
	if got := dropped(text); !maps.Equal(got, map[int]int{60034: 3, 60164: 5}) {
		t.Errorf("dropped counted %v, want 3 packets of 60034 and 5 of 60164", got)
	}
}

// A case counts for a fault of the way only if the fault took effect.
func TestBites(t *testing.T) {
	b := hits{}
	if missed := b.add([]effect{{"cut", "connections", 2}, {"5 % loss", "packets", 0}}); missed != "; did not bite: 5 % loss" {
		t.Error(missed)
	}
	if missed := b.add([]effect{{"cut", "connections", 1}}); missed != "" {
		t.Error(missed)
	}
	if cases, bit := b.total(); cases != 3 || bit != 2 {
		t.Error(cases, bit)
	}
	if got, want := b.String(), "5 % loss 0 of 1 (0 packets), cut 2 of 2 (3 connections)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
