// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// The times of a machine's start, in milliseconds since phase 1 began: its tap is open, which is all that a hypervisor
// needs; and the first frame that its guest could send has come to the node.
const (
	testTap   = "tap open"
	testFirst = "first frame"
)

// starts measures how long machines' starts take, one after the other in pods of their own.
func (b *bench) starts(ctx context.Context) error {
	var all []design
	for _, name := range b.cfg.Designs {
		if d, _ := find(name); d.binding != "" && d.binding != model.VMMacvtap && !d.host { // these are there before phase 1
			all = append(all, d)
		}
	}
	for round := range b.cfg.Starts {
		if round%50 == 0 {
			b.cfg.Log.Info("starting", "machines", round*len(all), "of", b.cfg.Starts*len(all))
		}
		for _, i := range b.random.Perm(len(all)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := b.start(ctx, all[i], strconv.Itoa(round)); err != nil {
				return fmt.Errorf("start of %s: %w", all[i].name, err)
			}
		}
	}
	return nil
}

// start takes one machine up and away again.
func (b *bench) start(ctx context.Context, d design, id string) error {
	w := &world{design: d, dir: filepath.Join(b.dir, "starts")}
	defer w.close()
	if err := w.lay(); err != nil {
		return err
	}
	c := phase1.Config{Dir: w.dir, Log: slog.New(slog.DiscardHandler)}
	begin := time.Now()
	r, err := c.Start(ctx, w.pod, d.name+id, input(d))
	if err != nil {
		return err
	}
	tap, err := w.open(r.Networks[0])
	open := time.Since(begin)
	if err != nil {
		return err
	}
	defer func() { _ = tap.Close() }()
	at, err := w.place(r.Networks[0])
	if err != nil {
		return err
	}
	if err := w.first(ctx, tap, at); err != nil {
		return err
	}
	for test, took := range map[string]time.Duration{testTap: open, testFirst: time.Since(begin)} {
		k := key{d.name, test}
		b.values[k] = append(b.values[k], float64(took)/float64(time.Millisecond))
	}
	return c.Undo(ctx, w.pod, d.name+id, "bench/vm")
}

// first sends frames until one has come.
func (w *world) first(ctx context.Context, tap *os.File, at place) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b := w.frameOf(at)
	before, err := arrived(w.peer, "eth0")
	for err == nil {
		if _, err = tap.Write(b); err != nil && !errors.Is(err, unix.EIO) { // the link is not up yet
			return err
		}
		var now uint64
		if now, err = arrived(w.peer, "eth0"); err == nil && now > before {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		time.Sleep(100 * time.Microsecond)
	}
	return fmt.Errorf("no frame arrived: %w", err)
}
