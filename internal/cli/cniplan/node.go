// SPDX-License-Identifier: Apache-2.0

package cniplan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

const (
	usualMTU = 1500
	uplink   = "eth0"
)

// node is the node that plans are for: it has an uplink with the default route, and the links that a configuration or a
// flag names.
type node map[string]*state.Answer

func newNode() node {
	n := node{}
	up := n.add(uplink)
	up.Addrs = []state.Addr{{Link: uplink, Prefix: netip.MustParsePrefix("192.0.2.10/24")}}
	return n
}

func (n node) add(name string) *state.Answer {
	if n[name] == nil {
		n[name] = &state.Answer{
			Found: true, Link: state.Link{Name: name, MAC: state.SeedMAC(name), MTU: usualMTU, Up: state.On()},
		}
	}
	return n[name]
}

// addNamed adds the links of the node that a plugin's configuration uses.
func (n node) addNamed(p model.PluginConf) {
	var c struct {
		Master string `json:"master"`
		Device string `json:"device"`
		Inside bool   `json:"linkInContainer"`
	}
	if json.Unmarshal(p.Raw, &c) != nil || c.Inside { // its planner reports the error
		return
	}
	if name := cmp.Or(c.Master, c.Device); name != "" {
		n.add(name)
	}
}

// addFlag adds the link of a flag: NAME[,KEY=VALUE…].
func (n node) addFlag(flag string) error {
	name, rest, _ := strings.Cut(flag, ",")
	if name == "" || strings.Contains(name, "=") {
		return linkError(flag, "it does not begin with a name")
	}
	l := n.add(name)
	for rest != "" {
		var pair string
		pair, rest, _ = strings.Cut(rest, ",")
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "mtu":
			mtu, err := strconv.ParseUint(value, 10, 16)
			if err != nil {
				return linkError(flag, fmt.Sprintf("mtu %q is not a whole number from 0 to 65535", value))
			}
			l.Link.MTU = int(mtu)
		case "mac":
			mac, err := state.ParseMAC(value)
			if err != nil {
				return linkError(flag, fmt.Sprintf("mac %q is not a MAC address", value))
			}
			l.Link.MAC = mac
		case "kind":
			l.Link.Kind = state.Kind(value)
		case "address":
			p, err := netip.ParsePrefix(value)
			if err != nil {
				return linkError(flag, fmt.Sprintf("address %q is not an address with a prefix length", value))
			}
			l.Addrs = append(l.Addrs, state.Addr{Link: name, Prefix: p})
		default:
			return linkError(flag, fmt.Sprintf("%q is not mtu, mac, kind or address", key))
		}
	}
	return nil
}

func linkError(flag, why string) error {
	return ui.Misusef("for example --link eth1,mtu=9000,address=198.51.100.10/24", "--link %q: %s", flag, why)
}

// answer answers planners' queries. What the node does not have is not found.
func (n node) answer(queries []state.Query) state.Answers {
	out := state.Answers{}
	for _, q := range queries {
		out[q] = n.answerOne(q)
	}
	return out
}

func (n node) answerOne(q state.Query) state.Answer {
	get := func(name string) state.Answer {
		if l := n[name]; l != nil {
			return *l
		}
		return state.Answer{}
	}
	switch {
	case q.Sysctl != "":
		return state.Answer{Found: true, Value: "0"}
	case q.Tap:
		return state.Answer{Found: true}
	case q.Tables:
		return state.Answer{Found: true, Tables: []uint32{253, 254, 255}} // default, main, local
	case q.File != "":
		b, err := os.ReadFile(q.File)
		return state.Answer{Found: err == nil, Value: string(b)}
	case q.Space == state.Pod:
		return state.Answer{}
	case q.Link != "":
		return get(q.Link)
	case q.Device.Name != "":
		return get(q.Device.Name)
	case !q.Device.MAC.IsZero():
		for _, name := range slices.Sorted(maps.Keys(n)) {
			if n[name].Link.MAC == q.Device.MAC {
				return get(name)
			}
		}
	case q.DefaultLink != "" && q.Except != uplink, q.RouteTo.IsValid():
		return get(uplink)
	case q.LinkOf.IsValid():
		for _, name := range slices.Sorted(maps.Keys(n)) {
			if slices.ContainsFunc(n[name].Addrs, func(a state.Addr) bool { return a.Prefix.Addr() == q.LinkOf }) {
				return get(name)
			}
		}
	}
	return state.Answer{}
}
