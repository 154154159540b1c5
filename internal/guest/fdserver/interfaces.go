// SPDX-License-Identifier: Apache-2.0

package fdserver

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

// interfaces returns the current interfaces with their sockets, and a channel that is closed when they change.
func (s *Server) interfaces(ctx context.Context) ([]serve.Interface, <-chan struct{}, error) {
	for try := 0; ; try++ {
		interfaces, changed, err := s.tryInterfaces()
		if !errors.Is(err, unix.EADDRINUSE) || try == maxRetries {
			return interfaces, changed, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(retryInterval):
		}
	}
}

func (s *Server) tryInterfaces() ([]serve.Interface, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []serve.Interface
	for _, guest := range s.want {
		w, err := s.openLocked(guest)
		if err != nil {
			err = fmt.Errorf("interface %s: %w", guest.Interface, err)
		}
		if errors.Is(err, errNoLink) { // the guest's other interfaces are served without it
			s.warnLocked(err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		out = append(out, w)
	}
	return out, s.changed, nil
}

// errNoLink means that an interface's link is not in the pod.
var errNoLink = errors.New("link not found")

// openLocked returns an interface with its sockets, which stay open as long as its link exists.
func (s *Server) openLocked(guest model.GuestConfig) (serve.Interface, error) {
	index := 0
	err := s.pod.Do(func() error {
		link, err := net.InterfaceByName(guest.Link)
		if err == nil {
			index = link.Index
		}
		return err
	})
	if err != nil {
		return serve.Interface{}, fmt.Errorf("link %s: %w: %w", guest.Link, errNoLink, err)
	}
	i := slices.IndexFunc(s.open, func(w openInterface) bool { return w.Guest.Link == guest.Link })
	if i >= 0 && s.open[i].index == index && sameSockets(s.open[i].Guest, guest) {
		s.open[i].Guest = guest
		return s.open[i].Interface, nil
	}
	if i >= 0 {
		_ = s.open[i].Sockets.Close()
		s.open = slices.Delete(s.open, i, i+1)
	}
	opened, err := sockets.Open(s.pod, guest)
	if err != nil {
		return serve.Interface{}, err
	}
	o := openInterface{Interface: serve.Interface{Guest: guest, Sockets: opened}, index: index}
	s.open = append(s.open, o)
	return o.Interface, nil
}

func sameSockets(a, b model.GuestConfig) bool {
	return (a.DHCP4 == nil) == (b.DHCP4 == nil) && (a.DHCP6 == nil) == (b.DHCP6 == nil) && (a.RA == nil) == (b.RA == nil)
}
