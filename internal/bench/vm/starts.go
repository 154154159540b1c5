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

// The times of a VM's start, in milliseconds since the begin of phase 1: its tap is open, which is all that a
// hypervisor needs; and the first frame from the VM has reached the peer.
const (
	testTap   = "tap open"
	testFirst = "first frame"
)

// starts measures VM starts, one after the other in new pods.
func (b *bench) starts(ctx context.Context) error {
	var all []design
	for _, name := range b.cfg.Designs {
		// The devices of the plain pod, of macvtap and of a host tap exist before phase 1.
		if d, _ := findDesign(name); d.binding != "" && d.binding != model.VMMacvtap && !d.hostTap {
			all = append(all, d)
		}
	}
	for round := range b.cfg.Starts {
		if round%50 == 0 {
			b.cfg.Log.Info("starting VMs", "started", round*len(all), "of", b.cfg.Starts*len(all))
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

// start starts one VM and removes it.
func (b *bench) start(ctx context.Context, d design, id string) error {
	w := &world{design: d, dir: filepath.Join(b.dir, "starts")}
	defer w.close()
	if err := w.addPods(); err != nil {
		return err
	}
	c := phase1.Config{Dir: w.dir, Log: slog.New(slog.DiscardHandler)}
	begin := time.Now()
	r, err := c.Start(ctx, w.pod, d.name+id, input(d))
	if err != nil {
		return err
	}
	tap, err := w.openTap(r.Networks[0])
	open := time.Since(begin)
	if err != nil {
		return err
	}
	defer func() { _ = tap.Close() }()
	guest, err := w.guestNet(r.Networks[0])
	if err != nil {
		return err
	}
	if err := w.firstFrame(ctx, tap, guest); err != nil {
		return err
	}
	for test, took := range map[string]time.Duration{testTap: open, testFirst: time.Since(begin)} {
		k := key{d.name, test}
		b.values[k] = append(b.values[k], float64(took)/float64(time.Millisecond))
	}
	return c.Undo(ctx, w.pod, d.name+id, "bench/vm")
}

// firstFrame sends frames until one has arrived.
func (w *world) firstFrame(ctx context.Context, tap *os.File, guest guestNet) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b := w.frameFrom(guest)
	before, err := rxPackets(w.peer, "eth0")
	for err == nil {
		if _, err = tap.Write(b); err != nil && !errors.Is(err, unix.EIO) { // the link is not up yet
			return err
		}
		var now uint64
		if now, err = rxPackets(w.peer, "eth0"); err == nil && now > before {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		time.Sleep(100 * time.Microsecond)
	}
	return fmt.Errorf("no frame arrived: %w", err)
}
