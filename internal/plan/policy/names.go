// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// shortHash returns a short name for long parts.
func shortHash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// family returns "4" or "6".
func family(six bool) string {
	if six {
		return "6"
	}
	return "4"
}

// ip returns nft's name of the family.
func ip(six bool) string {
	if six {
		return "ip6"
	}
	return "ip"
}

// nameOf returns a policy's name in chains and sets: readable if it is short enough for the kernel.
func nameOf(k model.PolicyKey) string {
	kind := map[model.PolicyKind]string{
		model.KindNetworkPolicy: "np", model.KindClusterNetworkPolicy: "cnp", model.KindMultiNetworkPolicy: "mnp",
		model.KindCalicoNetworkPolicy: "cali", model.KindGlobalNetworkPolicy: "gnp",
		model.KindHostEndpoint: "host", model.KindFelixConfiguration: "felix",
	}[k.Kind]
	const most = 180
	parts := slices.DeleteFunc([]string{kind, k.Namespace, k.Name}, func(s string) bool { return s == "" })
	if name := strings.Join(parts, "/"); len(name) <= most {
		return name
	}
	return kind + "/" + shortHash(k.String())
}

// maxComment is the maximum length of nft's comments and log prefixes.
const maxComment = 120

func truncate(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}

func nftProtocol(p model.Protocol) string { return strings.ToLower(string(p)) }
