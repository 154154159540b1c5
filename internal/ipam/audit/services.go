// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/serviceips"
)

// examineServices finds addresses that two Services have, or a Service and a pod, and those that are in no pool any more.
func (p *Report) examineServices(ctx context.Context, objects store.Objects) error {
	all, err := serviceips.List(ctx, objects, p.Pools)
	if err != nil {
		return err
	}
	p.services = serviceips.Holders(p.Pools, all)
	pods := map[netip.Addr]string{}
	for name, one := range p.pods {
		for _, a := range one.addrs {
			if !one.finished && p.services[a] != "" {
				pods[a] = name
			}
		}
	}
	for _, s := range all {
		if s.Owner == serviceips.Released {
			continue
		}
		namespace, name, _ := strings.Cut(s.Name, "/")
		o := store.Object{Key: store.Services().Key(namespace, name)}
		for _, a := range s.Addrs {
			holder, inPool := p.services[a]
			pool := strings.Join(p.poolsOf(netip.PrefixFrom(a, a.BitLen())), ", ")
			switch {
			case !inPool && s.Owner == serviceips.Weft && !s.Shared:
				p.found(NoPool, o, nil, "", "address %s is in no pool with allowedUses: [LoadBalancer]: add it to one, or request another one", a)
				continue
			case !inPool:
				continue
			case holder != s.Name:
				p.found(Conflict, o, nil, "", "address %s is also in Service %s: delete one of them", a, holder)
			case pods[a] != "":
				p.found(Conflict, o, nil, "", "address %s is also in use by pod %s: delete one of them", a, pods[a])
			default:
				continue
			}
			p.Findings[len(p.Findings)-1].Pool = pool
		}
	}
	return nil
}
