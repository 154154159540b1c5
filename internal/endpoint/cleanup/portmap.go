// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/kernel/nft"
)

// portChain reports whether a chain was created by portmap for a container: its name is a hash of network and
// container. Early versions also created "SN" chains.
func portChain(name string) bool { return named(name, "CNI-DN-", 21) || named(name, "CNI-SN-", 21) }

// removePortChains removes the chains that portmap creates with iptables. One that no rule jumps to, which a killed
// call has left, is identified by its name, on DEL.
func removePortChains(ctx context.Context, n *node, s Scope) error {
	found, err := n.iptables(ctx, "nat", s, portChain)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range found {
		errs = append(errs, t.remove(ctx, func(have *iptables.Table) iptables.Choice {
			var choice iptables.Choice
			for _, c := range have.Chains {
				if portChain(c.Name) && (s.ownsChain(c.Name) || anyOwned(have.LeadingTo(c.Name), s)) {
					choice.Chains = append(choice.Chains, c.Name)
				}
			}
			return choice
		}))
	}
	return errors.Join(errs...)
}

// removeSharedPortChains removes the chains that portmap shares between all containers, once the last container is
// gone: the reference plugin leaves them forever, and one of them masquerades every packet with its mark. Only a GC
// does this, because no ADD runs during a GC.
func removeSharedPortChains(ctx context.Context, n *node, s Scope) error {
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
		errs = append(errs, t.remove(ctx, func(have *iptables.Table) iptables.Choice {
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

// ownsChain reports whether a chain's name is derived from the scope's attachment.
func (s Scope) ownsChain(chain string) bool {
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

// removePortRules removes the rules that portmap creates with nftables. Their comment is the container's id and does
// not identify the network, so only a DEL removes them.
func removePortRules(ctx context.Context, n *node, s Scope) error {
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
	return n.removeRules(ctx, from, func(r nft.OtherRule) bool { return r.Comment == s.Key.ContainerID })
}
