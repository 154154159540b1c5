// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"strings"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/state"
)

// isShaper reports whether a name is that of a container's ifb, created by the bandwidth plugin: a hash of the network
// and the container.
func isShaper(name string) bool {
	hash, ok := strings.CutPrefix(name, "bwp")
	_, err := hex.DecodeString(hash)
	return ok && len(hash) == 12 && err == nil
}

func shaperName(network, container string) string {
	const length = 15
	sum := sha512.Sum512([]byte(network + container))
	return ("bwp" + hex.EncodeToString(sum[:]))[:length]
}

// removeIfb removes the ifb that the bandwidth plugin redirects a container's packets to. Its name does not identify
// the network, so GC removes those that no link redirects to: the container's interface is gone.
func removeIfb(ctx context.Context, n *node, s Scope) error {
	var names []string
	if s.Key != nil {
		names = []string{shaperName(s.Key.Network, s.Key.ContainerID)}
	} else {
		valid := map[string]bool{}
		for _, k := range s.Valid {
			valid[shaperName(s.Network, k.ContainerID)] = true
		}
		var err error
		names, err = n.host.UnusedIFBs(ctx, func(name string) bool { return isShaper(name) && !valid[name] })
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
