// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"strings"
)

// ParseArgs splits CNI_ARGS ("K=V;K=V") into pairs, in their order.
func ParseArgs(s string) ([][2]string, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > maxConf {
		return nil, fmt.Errorf("is too long: %d bytes", len(s))
	}
	var out [][2]string
	for pair := range strings.SplitSeq(s, ";") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" || strings.Contains(v, "=") {
			return nil, fmt.Errorf("pair %q is not KEY=VALUE", clip(pair))
		}
		if k == "IgnoreUnknown" && !isBool(v) {
			return nil, fmt.Errorf("IgnoreUnknown=%q is none of 1, 0, true, false", clip(v))
		}
		out = append(out, [2]string{k, v})
	}
	return out, nil
}

func isBool(s string) bool {
	switch strings.ToLower(s) {
	case "1", "0", "true", "false":
		return true
	}
	return false
}
