// SPDX-License-Identifier: Apache-2.0

package giver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/sockets"
	"github.com/weft-net/weft/internal/model"
)

// wires are those that there are now, open.
func (g *Giver) wires(ctx context.Context) ([]serve.Wire, <-chan struct{}, error) {
	for try := 0; ; try++ {
		wires, changed, err := g.tryWires()
		if !errors.Is(err, unix.EADDRINUSE) || try == openTries {
			return wires, changed, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(openAgain):
		}
	}
}

func (g *Giver) tryWires() ([]serve.Wire, <-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []serve.Wire
	for _, guest := range g.want {
		w, err := g.opened(guest)
		if err != nil {
			err = fmt.Errorf("interface %s: %w", guest.Interface, err)
		}
		if errors.Is(err, errNoLink) { // the guest's other interfaces do without it
			g.complain(err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		out = append(out, w)
	}
	return out, g.changed, nil
}

// errNoLink is a wire whose link is not in the pod.
var errNoLink = errors.New("the link is not there")

// opened is a wire with its sockets; they stay as long as its link does. g.mu is held.
func (g *Giver) opened(guest model.Guest) (serve.Wire, error) {
	index := 0
	err := g.pod.Do(func() error {
		link, err := net.InterfaceByName(guest.Link)
		if err == nil {
			index = link.Index
		}
		return err
	})
	if err != nil {
		return serve.Wire{}, fmt.Errorf("link %s: %w: %w", guest.Link, errNoLink, err)
	}
	i := slices.IndexFunc(g.open, func(w wire) bool { return w.Guest.Link == guest.Link })
	if i >= 0 && g.open[i].index == index && sameSockets(g.open[i].Guest, guest) {
		g.open[i].Guest = guest
		return g.open[i].Wire, nil
	}
	if i >= 0 {
		_ = g.open[i].Sockets.Close()
		g.open = slices.Delete(g.open, i, i+1)
	}
	s, err := sockets.Open(g.pod, guest)
	if err != nil {
		return serve.Wire{}, err
	}
	w := wire{Wire: serve.Wire{Guest: guest, Sockets: s}, index: index}
	g.open = append(g.open, w)
	return w.Wire, nil
}

func sameSockets(a, b model.Guest) bool {
	return (a.DHCP4 == nil) == (b.DHCP4 == nil) && (a.DHCP6 == nil) == (b.DHCP6 == nil) && (a.RA == nil) == (b.RA == nil)
}
