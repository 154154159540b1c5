// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// The annotations of Node objects with a node's settings of BGP, which are Calico's.
const (
	ASNumberAnnotation  = "projectcalico.org/ASNumber"
	ClusterIDAnnotation = "projectcalico.org/RouteReflectorClusterID"
)

// IsBGPAnnotation reports whether an annotation of a Node is one of those.
func IsBGPAnnotation(name string) bool {
	return name == ASNumberAnnotation || name == ClusterIDAnnotation
}

// nodeBGP reads a node's settings of BGP; nil if it has none.
func (o Object) nodeBGP(annotations map[string]string) (*model.NodeBGP, error) {
	var out model.NodeBGP
	if text := annotations[ASNumberAnnotation]; text != "" {
		var ok bool
		if out.ASN, ok = ASNumber(text); !ok {
			return nil, o.errorf(`write for example "64512" or "1.10"`, "annotation %s %q is no AS number", ASNumberAnnotation, text)
		}
	}
	if text := annotations[ClusterIDAnnotation]; text != "" {
		id, err := netip.ParseAddr(text)
		if err != nil || !id.Is4() {
			return nil, o.errorf(`write for example "244.0.0.1"`, "annotation %s %q is no IPv4 address", ClusterIDAnnotation, text)
		}
		out.ClusterID = id
	}
	if out == (model.NodeBGP{}) {
		return nil, nil
	}
	return &out, nil
}

// ASNumber reads an AS number, as a decimal number or as two with a dot (RFC 5396); false if it is none.
func ASNumber(text string) (uint32, bool) {
	high, low, dotted := strings.Cut(text, ".")
	if !dotted {
		n, err := strconv.ParseUint(text, 10, 32)
		return uint32(n), err == nil && n > 0
	}
	h, err := strconv.ParseUint(high, 10, 16)
	l, err2 := strconv.ParseUint(low, 10, 16)
	return uint32(h<<16 | l), err == nil && err2 == nil && h<<16|l > 0
}
