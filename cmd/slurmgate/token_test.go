package main

import (
	"io"
	"os"
	"testing"
)

// A token in the environment of whoever starts the program reaches none of the processes that it starts.
func TestNoTokenForChildren(t *testing.T) {
	t.Setenv("SLURM_JWT", "of the caller")
	if status := realMain(t.Context(), []string{"version"}, io.Discard, io.Discard); status != 0 {
		t.Errorf("status %d", status)
	}
	if token, there := os.LookupEnv("SLURM_JWT"); there {
		t.Errorf("SLURM_JWT is still %q", token)
	}
}
