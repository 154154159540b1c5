// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// portRange is a range of ports of a protocol.
type portRange struct {
	protocol    model.Protocol
	first, last uint16
}

// String returns the range in nft's syntax.
func (r portRange) String() string {
	if r.first == r.last {
		return strconv.Itoa(int(r.first))
	}
	return strconv.Itoa(int(r.first)) + "-" + strconv.Itoa(int(r.last))
}

func (r portRange) all() bool { return r.first == 0 && r.last == 65535 }

func (r portRange) contains(protocol model.Protocol, port uint16) bool {
	return r.protocol == protocol && r.first <= port && port <= r.last
}

func hasRange(ports []portRange) bool {
	return slices.ContainsFunc(ports, func(p portRange) bool { return p.first != p.last })
}

// numbers returns the numeric ports of a rule: sorted, without adjacent ranges.
func numbers(in []model.PolicyPort) []portRange {
	var all []portRange
	for _, p := range in {
		switch {
		case p.Name != "":
		case p.First == 0 && p.Last == 0:
			all = append(all, portRange{p.Protocol, 0, 65535})
		default:
			all = append(all, portRange{p.Protocol, p.First, max(p.First, p.Last)})
		}
	}
	slices.SortFunc(all, func(a, b portRange) int {
		return cmp.Or(strings.Compare(string(a.protocol), string(b.protocol)), cmp.Compare(a.first, b.first))
	})
	var out []portRange
	for _, r := range all {
		if n := len(out) - 1; n >= 0 && out[n].protocol == r.protocol && int(r.first) <= int(out[n].last)+1 {
			out[n].last = max(out[n].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// names returns the named ports of a rule.
func names(in []model.PolicyPort) []portName {
	var out []portName
	for _, p := range in {
		if n := (portName{p.Name, p.Protocol}); p.Name != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// portName is a named port of a policy; an empty protocol is any.
type portName struct {
	name     string
	protocol model.Protocol
}
