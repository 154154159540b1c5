// SPDX-License-Identifier: Apache-2.0

package leftover

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/kernel/nft"
)

// portChain tells whether a chain is a container's of portmap: it is named by a hash of network and container. "SN" is
// what early versions made as well.
func portChain(name string) bool { return named(name, "CNI-DN-", 21) || named(name, "CNI-SN-", 21) }

// takePortChains takes the chains that portmap makes with iptables. One that a killed call left without anything that
// leads to it is known by its name alone, on DEL.
func takePortChains(ctx context.Context, n *node, s Scope) error {
	found, err := n.iptables(ctx, "nat", s, portChain)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range found {
		errs = append(errs, t.take(ctx, func(have *iptables.Table) iptables.Choice {
			var choice iptables.Choice
			for _, c := range have.Chains {
				if portChain(c.Name) && (s.names(c.Name) || owned(have.LeadingTo(c.Name), s)) {
					choice.Chains = append(choice.Chains, c.Name)
				}
			}
			return choice
		}))
	}
	return errors.Join(errs...)
}

// takeSharedPortChains takes the chains that portmap has for all containers, when there is none any more: the reference
// plugin leaves them for ever, and among them one that masquerades every packet with its mark. Only a GC does, beside
// which nobody adds a container.
func takeSharedPortChains(ctx context.Context, n *node, s Scope) error {
	if s.Key != nil {
		return nil
	}
	const entry = "CNI-HOSTPORT-DNAT"
	shared := []string{entry, "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ"}
	found, err := n.iptables(ctx, "nat", s, func(name string) bool { return slices.Contains(shared, name) })
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range found {
		errs = append(errs, t.take(ctx, func(have *iptables.Table) iptables.Choice {
			if c := have.Chain(entry); c != nil && len(c.Rules) > 0 {
				return iptables.Choice{}
			}
			var choice iptables.Choice
			for _, c := range have.Chains {
				if portChain(c.Name) {
					return iptables.Choice{}
				}
				if slices.Contains(shared, c.Name) {
					choice.Chains = append(choice.Chains, c.Name)
				}
			}
			return choice
		}))
	}
	return errors.Join(errs...)
}

// names tells whether the attachment that goes has given a chain its name.
func (s Scope) names(chain string) bool {
	if s.Key == nil {
		return false
	}
	const most = 28
	sum := sha512.Sum512([]byte(s.Key.Network + s.Key.ContainerID))
	for _, prefix := range []string{"CNI-", "CNI-DN-", "CNI-SN-"} {
		if chain == (prefix + hex.EncodeToString(sum[:]))[:most] {
			return true
		}
	}
	return false
}

// takePorts takes the rules that portmap makes with nft. Their comment is the container's id: it does not say of which
// network, so that only a DEL takes them.
func takePorts(ctx context.Context, n *node, s Scope) error {
	if s.Key == nil {
		return nil
	}
	places, err := n.places(ctx)
	if err != nil {
		return err
	}
	var from []nft.Place
	for _, p := range places {
		if p.Table == "cni_hostport" && slices.Contains([]string{"hostports", "hostip_hostports", "masquerading"}, p.Chain) {
			from = append(from, p)
		}
	}
	if len(from) == 0 {
		return nil
	}
	return n.takeRules(ctx, from, func(r nft.OtherRule) bool { return r.Comment == s.Key.ContainerID })
}
