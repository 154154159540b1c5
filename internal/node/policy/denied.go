// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/plan/policy"
)

// denialLog logs denied packets, with the names of who sent them and to whom.
type denialLog struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired
}

// listen logs packets that are denied on the node, with the names of the pods and of the policies, until ctx ends.
func (dl *denialLog) listen(ctx context.Context) error {
	for {
		l, err := nflog.Listen(ctx, nil, dl.cfg.LogGroup, func(p nflog.Packet) { dl.deniedPacket(p, policy.Place{}) })
		if err == nil {
			<-l.Done()
		}
		if ctx.Err() != nil {
			return nil
		}
		dl.log.Warn("denied packets are not logged", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-dl.cfg.After(time.Minute):
		}
	}
}

// mostTold is how many packets of a pod's namespace are logged in a second.
const mostTold = 50

// calmly logs what is heard in a pod, but not faster than people read: who is root there can have rules of his own tell
// the group anything, as often as he likes. What is too much waits, and is lost in the kernel.
func (dl *denialLog) calmly(ctx context.Context, at policy.Place) func(nflog.Packet) {
	since, told := dl.cfg.Now(), 0
	return func(p nflog.Packet) {
		if now := dl.cfg.Now(); now.Sub(since) >= time.Second {
			since, told = now, 0
		}
		if told++; told > mostTold {
			select {
			case <-ctx.Done():
			case <-dl.cfg.After(time.Second):
			}
			since, told = dl.cfg.Now(), 1
		}
		if ctx.Err() == nil {
			dl.deniedPacket(p, at)
		}
	}
}

func (dl *denialLog) deniedPacket(p nflog.Packet, at policy.Place) {
	dl.desired.mu.Lock()
	network := dl.desired.networkOf(p, at)
	from, to := dl.desired.index.Holder(network, p.From.Addr()), dl.desired.index.Holder(network, p.To.Addr())
	dl.desired.mu.Unlock()
	dl.log.Info("denied", "by", p.Prefix, "packet", p.String(), "from", from.String(), "to", to.String())
}
