// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/model"
)

// masqChecks is the chain in which the nftables backend of bridge and ptp has a rule for each address.
func masqChecks() nft.Place {
	return nft.Place{Family: "inet", Table: "cni_plugins_masquerade", Chain: "masq_checks"}
}

// removeMasqueradeRules removes the rules whose comment begins with the hashes of network and attachment.
func removeMasqueradeRules(ctx context.Context, n *node, s Scope) error {
	places, err := n.places(ctx)
	if err != nil || !slices.Contains(places, masqChecks()) {
		return err
	}
	return n.removeRules(ctx, []nft.Place{masqChecks()}, func(r nft.OtherRule) bool { return s.ownsComment(r.Comment) })
}

// ownsComment reports whether a comment begins with the hashes of an attachment in the scope.
func (s Scope) ownsComment(comment string) bool {
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

// hash returns the beginning of a SHA-512 in hexadecimal.
func hash(s string) string {
	const length = 16
	sum := sha512.Sum512([]byte(s))
	return hex.EncodeToString(sum[:])[:length]
}
