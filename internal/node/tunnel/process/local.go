// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// appearance is the time between two looks for a process that listens.
const appearance = time.Second

// local runs tunnels in the agent's process while none outside does, and notices when one appears.
type local struct {
	tunnels Tunnels
	socket  string

	connected atomic.Bool
	// refused is the socket of a process that this program does not understand, or that was killed.
	refused atomic.Pointer[os.FileInfo]
	end     context.CancelFunc
	parts   sync.WaitGroup
}

// follow notifies changed when a process listens that is not connected, and when a tunnel of Local has died.
func follow(cfg ClientConfig, changed notify.Chan) *local {
	l := &local{tunnels: cfg.Local, socket: cfg.Socket}
	ctx, end := context.WithCancel(context.Background())
	l.end = end
	l.parts.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-l.tunnels.Changed():
				changed.Notify()
			case <-cfg.After(appearance):
				if !l.connected.Load() && l.listening() {
					changed.Notify()
				}
			}
		}
	})
	return l
}

func (l *local) close() {
	l.end()
	l.parts.Wait()
	l.tunnels.Close()
}

// listening reports whether there is a socket of a process that was not refused.
func (l *local) listening() bool {
	info, err := os.Stat(l.socket)
	if err != nil {
		return false
	}
	refused := l.refused.Load() // a file system may use its inode again
	return refused == nil || !os.SameFile(*refused, info) || !(*refused).ModTime().Equal(info.ModTime())
}

// refuse remembers the process that listens.
func (l *local) refuse() {
	if info, err := os.Stat(l.socket); err == nil {
		l.refused.Store(&info)
	}
}

// keepLocal has a process outside run the tunnels, and runs them here if there is none, or none that can.
func (c *Client) keepLocal(ctx context.Context, wanted []mesh.Tunnel) error {
	if c.link == nil && c.local.listening() {
		l, err := c.dial()
		switch {
		case err == nil:
			c.use(l)
		case notListening(err): // of a process that was killed
			c.local.refuse()
		default:
			c.cfg.Log.Warn("process of the tunnels cannot be reached", "socket", c.cfg.Socket, "err", err)
		}
	}
	if c.link == nil {
		return c.local.tunnels.Keep(ctx, wanted)
	}
	if c.local.tunnels.Running() > 0 {
		c.cfg.Log.Info("tunnels are passed to their process", "pid", c.link.hello.PID, "version", c.link.hello.Program)
		if err := c.local.tunnels.Keep(ctx, nil); err != nil { // it could not open their devices
			return fmt.Errorf("tunnels of this process: %w", err)
		}
	}
	again, err := c.try(ctx, wanted)
	var failed runError
	switch {
	case errors.As(err, &failed):
		return c.compare(ctx, wanted, err)
	case !again:
		return err
	}
	c.cfg.Log.Warn("tunnels run in the agent, and packets are lost when it is replaced", "reason", err)
	return c.local.tunnels.Keep(ctx, wanted)
}

// compare runs tunnels here that do not run in the process, to know whether that is the process's fault: it may lack a
// right or a device. If it is, the tunnels stay here. It is done once for each connection: the others would be disturbed.
func (c *Client) compare(ctx context.Context, wanted []mesh.Tunnel, failed error) error {
	if c.link.compared {
		return failed
	}
	c.link.compared = true
	if _, err := c.try(ctx, nil); err != nil || c.link == nil {
		return errors.Join(failed, err)
	}
	if err := c.local.tunnels.Keep(ctx, wanted); err != nil {
		err = errors.Join(failed, c.local.tunnels.Keep(ctx, nil))
		c.changed.Notify() // the process runs those that it can
		return err
	}
	c.local.refuse()
	c.disconnect()
	c.cfg.Log.Warn("tunnels run in the agent, and packets are lost when it is replaced: their process cannot run them",
		"err", failed)
	return nil
}
