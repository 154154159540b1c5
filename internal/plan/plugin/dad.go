// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// dadTimeout is the key of dadConf.
const dadTimeout = "dadTimeout"

// dadConf is the configuration of the probe for duplicates of the container's addresses. The key is NetworkManager's
// dad-timeout.
type dadConf struct {
	// DADTimeout is how long the addresses are probed, in milliseconds; 0: they are not.
	DADTimeout int `json:"dadTimeout"`
}

// maxDADTimeout is a little more than the longest that a host takes with the times of RFC 5227: 1 s of PROBE_WAIT,
// twice 2 s of PROBE_MAX, 2 s of ANNOUNCE_WAIT.
const maxDADTimeout = 10_000

// check rejects a timeout out of range, and one without addresses.
func (c dadConf) check(conf model.PluginConf, ipam bool) error {
	switch {
	case c.DADTimeout < 0 || c.DADTimeout > maxDADTimeout:
		return model.Errorf(model.CodeInvalidConf, "milliseconds, for example 200; 0 disables it",
			"plugin %s: dadTimeout %d is not between 0 and %d", conf.Type, c.DADTimeout, maxDADTimeout)
	case c.DADTimeout > 0 && !ipam:
		return model.Errorf(model.CodeInvalidConf, "leave it out, or add ipam",
			"plugin %s: dadTimeout %d: the interface gets no addresses that could be probed", conf.Type, c.DADTimeout)
	}
	return nil
}

// probe adds the probe of a link's addresses.
func (c dadConf) probe(f *state.Fragment, link string) {
	var addrs []netip.Addr
	for _, a := range f.Pod.Addrs {
		if a.Link == link {
			addrs = append(addrs, a.Prefix.Addr())
		}
	}
	if c.DADTimeout == 0 || len(addrs) == 0 {
		return
	}
	f.Effects = append(f.Effects, state.Effect{
		Kind: state.ProbeAddrs, When: state.BeforeAddrs, Space: state.Pod, Link: link, Addrs: addrs,
		Milliseconds: c.DADTimeout,
	})
}

// rejectDAD rejects the key in the configuration of a plugin that cannot probe: its users would rely on it.
func rejectDAD(p Planner, conf model.PluginConf) error {
	if !bytes.Contains(conf.Raw, []byte(`"`+dadTimeout+`"`)) || slices.Contains(p.Keys(), dadTimeout) {
		return nil // no configuration is decoded twice for a key that few have
	}
	var c struct {
		DADTimeout json.RawMessage `json:"dadTimeout"`
	}
	if decode(conf, &c) != nil || len(c.DADTimeout) == 0 || string(c.DADTimeout) == "0" || string(c.DADTimeout) == "null" {
		return nil // the plugin reports what is no object
	}
	return model.Errorf(model.CodeInvalidConf, "leave it out, or use bridge, host-device, macvlan or vlan",
		"plugin %s: dadTimeout %s: the plugin cannot probe for duplicates, because its interface has no other hosts "+
			"or does not receive their answers", conf.Type, c.DADTimeout)
}
