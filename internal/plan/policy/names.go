// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// short is a name for something that has a long one.
func short(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// family is "4" or "6".
func family(six bool) string {
	if six {
		return "6"
	}
	return "4"
}

// ip is how nft calls the family.
func ip(six bool) string {
	if six {
		return "ip6"
	}
	return "ip"
}

// nameOf is how chains and sets call a policy: readable where it is short enough for the kernel.
func nameOf(k model.PolicyKey) string {
	kind := map[model.PolicyKind]string{
		model.KindNetworkPolicy: "np", model.KindClusterNetworkPolicy: "cnp", model.KindMultiNetworkPolicy: "mnp",
	}[k.Kind]
	const most = 180
	parts := slices.DeleteFunc([]string{kind, k.Namespace, k.Name}, func(s string) bool { return s == "" })
	if name := strings.Join(parts, "/"); len(name) <= most {
		return name
	}
	return kind + "/" + short(k.String())
}

// mostComment is how long nft's comments and log prefixes may be.
const mostComment = 120

func cut(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}

func nftProto(p model.Protocol) string { return strings.ToLower(string(p)) }
