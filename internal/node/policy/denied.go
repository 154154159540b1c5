// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/plan/policy"
)

// denialLog logs denied packets with the names of the source and the destination.
type denialLog struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired
}

// listen logs packets that are denied on the node until ctx ends.
func (dl *denialLog) listen(ctx context.Context) error {
	for {
		l, err := nflog.Listen(
			ctx,
			nil,
			dl.cfg.LogGroup,
			func(p nflog.Packet) { dl.deniedPacket(p, policy.EnforcementPoint{}) },
		)
		if err == nil {
			<-l.Done()
		}
		if ctx.Err() != nil {
			return nil
		}
		dl.log.Warn("denied packets cannot be logged", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-dl.cfg.After(time.Minute):
		}
	}
}

// maxLoggedPerSecond limits the logged packets of a pod's namespace, per second.
const maxLoggedPerSecond = 50

// rateLimited logs packets denied in a pod, at a limited rate: root in the pod can send any packets to the group by
// its own rules. Packets beyond the limit wait, and are dropped by the kernel.
func (dl *denialLog) rateLimited(ctx context.Context, at policy.EnforcementPoint) func(nflog.Packet) {
	since, logged := dl.cfg.Now(), 0
	return func(p nflog.Packet) {
		if now := dl.cfg.Now(); now.Sub(since) >= time.Second {
			since, logged = now, 0
		}
		if logged++; logged > maxLoggedPerSecond {
			select {
			case <-ctx.Done():
			case <-dl.cfg.After(time.Second):
			}
			since, logged = dl.cfg.Now(), 1
		}
		if ctx.Err() == nil {
			dl.deniedPacket(p, at)
		}
	}
}

// logPrefix begins the prefix of packets that a rule of Calico's logs.
const logPrefix = "log:"

func (dl *denialLog) deniedPacket(p nflog.Packet, at policy.EnforcementPoint) {
	if rule, logged := strings.CutPrefix(p.Prefix, logPrefix); logged {
		dl.log.Info("packet matches a rule that logs", "rule", rule, "packet", p.String())
		return
	}
	dl.desired.mu.Lock()
	network := dl.desired.networkOfLocked(p, at)
	from, to := dl.desired.index.Holder(network, p.From.Addr()), dl.desired.index.Holder(network, p.To.Addr())
	observers := slices.Collect(maps.Keys(dl.desired.deniedObservers))
	dl.desired.mu.Unlock()
	if len(observers) > 0 {
		d := DeniedPacket{Packet: p, Network: network}
		d.Direction, d.Policies = parsePrefix(p.Prefix)
		for _, f := range observers {
			(*f)(d)
		}
	}
	dl.log.Info("packet is denied", "rule", p.Prefix, "packet", p.String(), "from", from.String(), "to", to.String())
}
