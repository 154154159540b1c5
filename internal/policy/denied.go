// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/model"
)

// Teller tells people about policies, behind the caller's back.
type Teller interface {
	// Faults says what of a policy could not be understood; none: all of it is.
	Faults(key model.PolicyKey, faults []string)
}

// tell tells what is wrong with a policy. The lock is held.
func (e *Enforcer) tell(key model.PolicyKey, faults []string) {
	if len(faults) > 0 {
		e.log.Warn("policy is not understood in full; what is not allows nothing", "policy", key.String(), "faults", faults)
	}
	if e.cfg.Told != nil {
		e.cfg.Told.Faults(key, faults)
	}
}

// Counts are the packets that policies denied on this node since their chains were made, by what the rule says.
func (e *Enforcer) Counts(ctx context.Context) ([]kernel.Count, error) {
	each, err := e.countEach(ctx)
	var all []kernel.Count
	for _, where := range slices.Sorted(maps.Keys(each)) {
		all = append(all, each[where]...)
	}
	return all, err
}

// counter is one of those who count: where, and what was denied by whom.
type counter struct{ where, by string }

// Denied are the packets that were denied on this node since the agent was started, by who denied them. A chain that is made
// anew counts from nothing; what it counted before is not forgotten.
func (e *Enforcer) Denied() map[string]float64 {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	each, err := e.countEach(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil { // what was counted last stays: else all of it would be counted once more
		e.log.Warn("denied packets cannot be counted", "err", err)
		return maps.Clone(e.denials)
	}
	now := map[counter]uint64{}
	for where, counts := range each {
		for _, c := range counts {
			if by, ok := strings.CutPrefix(c.Comment, "deny "); ok {
				now[counter{where, by}] += c.Packets // long names are cut short, and may meet
			}
		}
	}
	for c, more := range now {
		if was := e.counted[c]; was <= more {
			more -= was
		}
		e.denials[c.by] += float64(more)
	}
	e.counted = now
	return maps.Clone(e.denials)
}

// listen logs denied packets with the names of the pods and of the policies, until ctx ends.
func (e *Enforcer) listen(ctx context.Context) error {
	for {
		done, err := nflog.Listen(ctx, nil, e.cfg.LogGroup, e.deniedPacket)
		if err == nil {
			<-done
		}
		if ctx.Err() != nil {
			return nil
		}
		e.log.Warn("denied packets are not logged", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-e.cfg.After(time.Minute):
		}
	}
}

func (e *Enforcer) deniedPacket(p nflog.Packet) {
	e.mu.Lock()
	from, to := e.index.Holder(p.From.Addr()), e.index.Holder(p.To.Addr())
	e.mu.Unlock()
	e.log.Info("denied", "by", p.Prefix, "packet", p.String(), "from", from.String(), "to", to.String())
}
