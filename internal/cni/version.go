// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Latest is the newest version of the specification.
const Latest = "1.1.0"

// Versions returns the supported versions of the specification, oldest first.
func Versions() []string {
	return []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", Latest}
}

// VersionReply returns the reply to VERSION.
func VersionReply() []byte {
	b, err := json.Marshal(struct {
		CNIVersion        string   `json:"cniVersion"`
		SupportedVersions []string `json:"supportedVersions"`
	}{Latest, Versions()})
	if err != nil {
		return nil // strings always marshal
	}
	return append(b, '\n')
}

// checkVersion makes the version of a configuration explicit (absent means 0.1.0) and rejects an unsupported one.
func checkVersion(v string) (string, error) {
	if v == "" {
		return "0.1.0", nil
	}
	if slices.Contains(Versions(), v) {
		return v, nil
	}
	return "", model.Errorf(model.CodeIncompatibleVersion, "use one of "+strings.Join(Versions(), ", "),
		"cniVersion %q is not supported", clip(v))
}

// negotiate returns the highest supported version among those that a list offers.
func negotiate(version string, more []string) (string, error) {
	offered := more
	if version != "" || len(more) == 0 {
		offered = append([]string{version}, more...)
	}
	best := ""
	for _, v := range offered {
		if v, err := checkVersion(v); err == nil && (best == "" || AtLeast(v, best)) {
			best = v
		}
	}
	if best == "" {
		return "", model.Errorf(model.CodeIncompatibleVersion, "offer one of "+strings.Join(Versions(), ", "),
			"cniVersion: none of %q is supported", clip(strings.Join(offered, " ")))
	}
	return best, nil
}

// AtLeast reports whether version a is b or newer. An absent version is 0.1.0; a malformed one is older than all.
func AtLeast(a, b string) bool { return slices.Compare(parts(a), parts(b)) >= 0 }

func parts(v string) []int {
	if v == "" {
		v = "0.1.0"
	}
	out := make([]int, 0, 3)
	for _, s := range strings.SplitN(v, ".", 4) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return []int{-1}
		}
		out = append(out, n)
	}
	return out
}

// clip shortens untrusted values in messages.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
