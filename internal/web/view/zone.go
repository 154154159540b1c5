// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strings"
)

// zoneFocus is a part of the nodes that the map shows: those of a zone, or of them the group from first to last. Nodes
// without a zone are in groups of the zone "".
type zoneFocus struct{ zone, first, last string }

// String returns the focus as MapInput has it: zone:ZONE, or zone:ZONE/FIRST…LAST.
func (z zoneFocus) String() string {
	if z.first == "" {
		return "zone:" + z.zone
	}
	return "zone:" + z.zone + "/" + z.first + "…" + z.last
}

// parseZone parses a focus; ok is false if it is not that of a zone.
func parseZone(focus string) (z zoneFocus, ok bool) {
	focus, ok = strings.CutPrefix(focus, "zone:")
	var group string
	z.zone, group, _ = strings.Cut(focus, "/")
	z.first, z.last, _ = strings.Cut(group, "…")
	return z, ok
}

// title names it, as part of the zone within.
func (z zoneFocus) title(within string) string {
	group := z.first + "…" + z.last
	switch {
	case z.first == "":
		return "zone " + z.zone
	case z.zone == within:
		return group
	}
	return "zone " + z.zone + ", " + group
}

// inZone returns those of sorted nodes that are in a part.
func (in MapInput) inZone(z zoneFocus, names []string) (out []string) {
	for _, n := range names {
		if in.Zones[n] == z.zone && (z.first == "" || compareNames(n, z.first) >= 0 && compareNames(n, z.last) <= 0) {
			out = append(out, n)
		}
	}
	return out
}

// groups returns the groups of the nodes of a zone.
func (in MapInput) groups(zone string) map[string]zoneFocus {
	members := in.inZone(zoneFocus{zone: zone}, in.names())
	size := max(groupSize, (len(members)+maxTiles-1)/maxTiles)
	out := map[string]zoneFocus{}
	for group := range slices.Chunk(members, size) {
		for _, n := range group {
			out[n] = zoneFocus{zone, group[0], group[len(group)-1]}
		}
	}
	return out
}

// container returns the smallest part of many nodes that has a node.
func (in MapInput) container(name string) zoneFocus {
	z := zoneFocus{zone: in.Zones[name]}
	if z.zone != "" && len(in.inZone(z, in.names())) <= maxTiles {
		return z
	}
	return in.groups(z.zone)[name]
}

// Linked returns the nodes between which the map draws links: for them it needs all Peers, for the others their Summary.
func Linked(nodes []string, zones map[string]string, focus string) []string {
	names := slices.SortedFunc(slices.Values(nodes), compareNames)
	if z, ok := parseZone(focus); ok {
		names = MapInput{Zones: zones}.inZone(z, names)
	}
	if len(names) > maxCards {
		return nil
	}
	return names
}
