// SPDX-License-Identifier: Apache-2.0

package leftover

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"strings"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/state"
)

// shaper tells whether a name is one that bandwidth gives the ifb of a container: a hash of the network and the
// container.
func shaper(name string) bool {
	hash, ok := strings.CutPrefix(name, "bwp")
	_, err := hex.DecodeString(hash)
	return ok && len(hash) == 12 && err == nil
}

func shaperOf(network, container string) string {
	const length = 15
	sum := sha512.Sum512([]byte(network + container))
	return ("bwp" + hex.EncodeToString(sum[:]))[:length]
}

// takeIfb takes the ifb that bandwidth sends a container's packets through. Its name does not tell of which network it
// is, so GC takes those through which nobody's packets go any more: the container's interface is gone.
func takeIfb(ctx context.Context, n *node, s Scope) error {
	var names []string
	if s.Key != nil {
		names = []string{shaperOf(s.Key.Network, s.Key.ContainerID)}
	} else {
		valid := map[string]bool{}
		for _, k := range s.Valid {
			valid[shaperOf(s.Network, k.ContainerID)] = true
		}
		var err error
		names, err = n.host.Unfed(ctx, func(name string) bool { return shaper(name) && !valid[name] })
		if err != nil {
			return err
		}
	}
	f := state.Fragment{Owner: "left by bandwidth"}
	for _, name := range names {
		f.Host.Links = append(f.Host.Links, state.Link{Name: name, Kind: state.Ifb})
	}
	if f.Host.Empty() {
		return nil
	}
	return kernel.Spaces{Host: n.host}.Remove(ctx, f)
}
