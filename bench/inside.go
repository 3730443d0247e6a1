package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// inside runs the part on the cluster's login node, as a plain user.
func inside(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("inside is started by bench itself")
	}
	if alone := map[string]func(context.Context, place) error{"idle": idle, "replay": replayAlone}[args[0]]; alone != nil {
		var p place
		if err := json.Unmarshal([]byte(args[1]), &p); err != nil {
			return err
		}
		return alone(ctx, p)
	}
	if args[0] == "carry" {
		var c carried
		if err := json.Unmarshal([]byte(args[1]), &c); err != nil {
			return err
		}
		return carry(ctx, c)
	}
	if args[0] == "import" {
		var what imported
		if err := json.Unmarshal([]byte(args[1]), &what); err != nil {
			return err
		}
		return importAlone(ctx, what)
	}
	if args[0] == "import-folder" {
		var what imported
		if err := json.Unmarshal([]byte(args[1]), &what); err != nil {
			return err
		}
		return importFolderAlone(ctx, what)
	}
	if args[0] == "attack" {
		var t target
		if err := json.Unmarshal([]byte(args[1]), &t); err != nil {
			return err
		}
		return attack(ctx, t)
	}
	m := &measurement{figures: figures{w: os.Stdout}, dir: filepath.Join(sharedDir, args[0]), began: time.Now()}
	if err := json.Unmarshal([]byte(args[1]), &m.sizes); err != nil {
		return err
	}
	var err error
	switch args[0] {
	case "rpc":
		err = m.rpc(ctx)
	case "arrays":
		err = m.arrays(ctx)
	case "limitedarrays":
		err = m.limitedArrays(ctx)
	case "race":
		err = m.raceAlone(ctx)
	case "slurmrestd":
		err = m.restRace(ctx)
	case "limited":
		err = m.limited(ctx)
	case "submit":
		err = m.submit(ctx)
	case "faces":
		err = m.faces(ctx)
	case "fair":
		err = m.fair(ctx)
	case "staging":
		err = m.staging(ctx)
	default:
		err = fmt.Errorf("there is no inside measurement %q", args[0])
	}
	if err != nil {
		return err
	}
	return m.figures.err()
}

// measurement is one measurement in progress.
type measurement struct {
	figures
	sizes sizes
	dir   string
	began time.Time
}

func (m *measurement) say(format string, v ...any) {
	fmt.Fprintf(os.Stderr, "bench %5.1f s: "+format+"\n", append([]any{time.Since(m.began).Seconds()}, v...)...)
}
