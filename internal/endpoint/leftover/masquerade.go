// SPDX-License-Identifier: Apache-2.0

package leftover

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/model"
)

// masqChecks is where bridge and ptp put a rule for each address with their nft backend.
func masqChecks() nft.Place {
	return nft.Place{Family: "inet", Table: "cni_plugins_masquerade", Chain: "masq_checks"}
}

// takeMasquerade takes the rules whose comment begins with the hashes of network and attachment.
func takeMasquerade(ctx context.Context, n *node, s Scope) error {
	places, err := n.places(ctx)
	if err != nil || !slices.Contains(places, masqChecks()) {
		return err
	}
	return n.takeRules(ctx, []nft.Place{masqChecks()}, func(r nft.OtherRule) bool { return s.hashed(r.Comment) })
}

// hashed tells whether a comment begins with the hashes of who goes.
func (s Scope) hashed(comment string) bool {
	if s.Key != nil {
		return strings.HasPrefix(comment, hashes(*s.Key)+",")
	}
	if !strings.HasPrefix(comment, hash(s.Network)+"-") {
		return false
	}
	return !slices.ContainsFunc(s.Valid, func(k model.AttachmentKey) bool {
		return strings.HasPrefix(comment, hashes(k)+",")
	})
}

func hashes(k model.AttachmentKey) string {
	return hash(k.Network) + "-" + hash(k.IfName+":"+k.ContainerID)
}

// hash is the beginning of a SHA-512 in hexadecimal.
func hash(s string) string {
	const length = 16
	sum := sha512.Sum512([]byte(s))
	return hex.EncodeToString(sum[:])[:length]
}
