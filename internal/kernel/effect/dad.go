// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

const (
	dadPatience = 5 * time.Second
	dadStep     = 20 * time.Millisecond
)

// ErrDuplicate is wrapped when duplicate address detection found another host that has an address.
var ErrDuplicate = errors.New("another host on the link has it")

// DuplicateError reports that another host has an address, or is about to use it. It wraps ErrDuplicate.
type DuplicateError struct {
	Addr netip.Addr
	// Link is the link on which it was probed, MAC the host's address there.
	Link string
	MAC  net.HardwareAddr
	// Probing is set if the host probes for the address at the same moment.
	Probing bool
}

func (e *DuplicateError) Error() string {
	if e.Probing {
		return fmt.Sprintf("address %s of %s: host %s on the link is about to use it", e.Addr, e.Link, e.MAC)
	}
	return fmt.Sprintf("address %s of %s: host %s on the link has it", e.Addr, e.Link, e.MAC)
}

// Unwrap returns ErrDuplicate.
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }

// waitDAD waits until no IPv6 address of the link is tentative.
func waitDAD(ctx context.Context, ns *netns.NS, name string) error {
	ctx, cancel := context.WithTimeout(ctx, dadPatience)
	defer cancel()
	tick := time.NewTicker(dadStep)
	defer tick.Stop()
	for {
		busy, err := isTentative(ns, name)
		if err != nil || !busy {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("addresses of %s are still tentative: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
}

// formatIPv6 formats an address of /proc/net/if_inet6, which has no colons.
func formatIPv6(digits string) string {
	var a [16]byte
	if n, err := hex.Decode(a[:], []byte(digits)); n != len(a) || err != nil {
		return digits
	}
	return netip.AddrFrom16(a).String()
}

func isTentative(ns *netns.NS, name string) (bool, error) {
	var text []byte
	err := ns.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/if_inet6")
		return err
	})
	if os.IsNotExist(err) {
		return false, nil // a kernel without IPv6
	}
	if err != nil {
		return false, fmt.Errorf("addresses of %s: %w", name, err)
	}
	busy := false
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // address, index, prefix length, scope, flags, name
		if len(f) != 6 || f[5] != name {
			continue
		}
		flags, err := strconv.ParseUint(f[4], 16, 8)
		if err != nil {
			return false, fmt.Errorf("addresses of %s: %w", name, err)
		}
		if flags&unix.IFA_F_DADFAILED != 0 {
			return false, fmt.Errorf("address %s of %s: %w", formatIPv6(f[0]), name, ErrDuplicate)
		}
		busy = busy || flags&unix.IFA_F_TENTATIVE != 0
	}
	return busy, nil
}
