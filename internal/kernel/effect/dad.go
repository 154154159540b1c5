// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

const (
	dadPatience = 5 * time.Second
	dadStep     = 20 * time.Millisecond
	tentative   = "40" // IFA_F_TENTATIVE, as if_inet6 prints flags
)

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

func isTentative(ns *netns.NS, name string) (bool, error) {
	busy := false
	err := ns.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/if_inet6")
		if os.IsNotExist(err) {
			return nil // a kernel without IPv6
		}
		if err != nil {
			return fmt.Errorf("addresses of %s: %w", name, err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) == 6 && f[5] == name && f[4] == tentative {
				busy = true
			}
		}
		return nil
	})
	return busy, err
}
