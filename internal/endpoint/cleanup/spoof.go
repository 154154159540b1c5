// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/state"
)

const spoofPrefix, spoofComment = "cni-br-iface-", "macspoofchk-"

// removeSpoofCheck removes the chains by which a bridge with macspoofchk checks the frames of a port. Their names
// identify container and interface, but not the network: a GC removes those whose port is gone, which no packet can
// enter.
func removeSpoofCheck(ctx context.Context, n *node, s Scope) error {
	base := nft.Place{Family: "bridge", Table: "nat", Chain: "PREROUTING"}
	places, err := n.places(ctx)
	if err != nil {
		return err
	}
	var owners []string
	for _, p := range places {
		name, ok := strings.CutPrefix(p.Chain, spoofPrefix)
		if p.Family == base.Family && p.Table == base.Table && ok && !strings.HasSuffix(name, "-mac") {
			owners = append(owners, name)
		}
	}
	if s.Key != nil {
		mine := s.Key.ContainerID + "-" + s.Key.IfName
		owners = slices.DeleteFunc(owners, func(o string) bool { return o != mine })
	} else if owners, err = n.orphans(ctx, base, owners, s); err != nil {
		return err
	}
	if len(owners) == 0 {
		return nil
	}
	var chains []nft.Place
	for _, p := range places {
		name := strings.TrimSuffix(strings.TrimPrefix(p.Chain, spoofPrefix), "-mac")
		if p.Family == base.Family && p.Table == base.Table && strings.HasPrefix(p.Chain, spoofPrefix) &&
			slices.Contains(owners, name) {
			chains = append(chains, p)
		}
	}
	return n.removeChains(ctx, []nft.Place{base}, func(r nft.OtherRule) bool {
		name, ok := strings.CutPrefix(r.Comment, spoofComment)
		return ok && slices.Contains(owners, name)
	}, chains)
}

// orphans returns the owners that are not valid and whose ports are gone.
func (n *node) orphans(ctx context.Context, base nft.Place, owners []string, s Scope) ([]string, error) {
	for _, k := range s.Valid {
		owners = slices.DeleteFunc(owners, func(o string) bool { return o == k.ContainerID+"-"+k.IfName })
	}
	if len(owners) == 0 {
		return nil, nil
	}
	c, err := n.host.Netfilter()
	if err != nil {
		return nil, err
	}
	rules, err := c.RulesOf(ctx, base)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, owner := range owners {
		alive := false
		for _, r := range rules {
			if r.Comment != spoofComment+owner {
				continue
			}
			there, err := n.linkThere(ctx, portIn(r.Text))
			if err != nil {
				return nil, err
			}
			alive = alive || there
		}
		if !alive {
			out = append(out, owner)
		}
	}
	return out, nil
}

// portIn returns the port's name in a rule that begins with `iifname`, else "".
func portIn(rule string) string {
	rest, ok := strings.CutPrefix(rule, `iifname "`)
	name, _, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		return ""
	}
	return name
}

// linkThere reports whether the node has a link; an empty name counts as present.
func (n *node) linkThere(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return true, nil
	}
	space, err := n.host.Read(ctx, state.Space{Links: []state.Link{{Name: name}}})
	return len(space.Links) > 0, err
}
