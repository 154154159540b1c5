// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Loopback sets the container's lo up.
type Loopback struct{}

const lo = "lo"

// Type returns "loopback".
func (Loopback) Type() string { return "loopback" }

// Capabilities returns none: the plugin implements no optional interface.
func (Loopback) Capabilities() Capabilities { return Capabilities{} }

// Keys returns the configuration keys that all plugins have.
func (Loopback) Keys() []string { return commonKeys() }

// Decode accepts every JSON object.
func (Loopback) Decode(conf model.PluginConf) (any, error) {
	return nil, decode(conf, &struct{}{})
}

// IPAM returns nil: the plugin needs no addresses.
func (Loopback) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Observe returns the queries for lo and its addresses.
func (Loopback) Observe(Input) ([]state.Query, error) {
	return []state.Query{{Space: state.Pod, Link: lo}}, nil
}

// Plan sets lo up, and records that it was down. Its addresses are the kernel's own; an earlier plugin's result is
// returned unchanged. The interface is always lo, whatever CNI_IFNAME is.
func (l Loopback) Plan(in Input) (Step, error) {
	step := Step{Fragment: state.Fragment{
		Owner: Owner(in.Request.Key()),
		Pod:   state.Space{Links: []state.Link{{Name: lo, Up: state.On()}}},
	}}
	answer := in.Answers[state.Query{Space: state.Pod, Link: lo}]
	if answer.Found && answer.Link.Up != nil && !*answer.Link.Up {
		step.Restore = state.Fragment{
			Owner: step.Fragment.Owner, Pod: state.Space{Links: []state.Link{{Name: lo, Up: state.Off()}}},
		}
	}
	if in.Chain.Prev != nil {
		step.Result = *in.Chain.Prev
		return step, nil
	}
	ips, err := loopbackAddrs(answer)
	if err != nil {
		return Step{}, err
	}
	step.Result = model.Result{
		Interfaces: []model.Interface{{Name: lo, MAC: "00:00:00:00:00:00", Sandbox: in.Request.Netns}},
		IPs:        ips,
	}
	return step, nil
}

// loopbackAddrs returns the addresses that lo has or, while it is down, will have.
func loopbackAddrs(a state.Answer) ([]model.IP, error) {
	zero := 0
	v4 := model.IP{Interface: &zero, Address: netip.MustParsePrefix("127.0.0.1/8")}
	v6 := model.IP{Interface: &zero, Address: netip.MustParsePrefix("::1/128")}
	for _, addr := range a.Addrs {
		if ip := addr.Prefix.Addr(); !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			return nil, model.Errorf(model.CodeInternal, "",
				"interface lo has the address %s, which is not a loopback address", addr.Prefix)
		}
	}
	up := a.Found && a.Link.Up != nil && *a.Link.Up
	if !up {
		return []model.IP{v4, v6}, nil
	}
	var out []model.IP
	for _, want := range []model.IP{v4, v6} {
		for _, addr := range a.Addrs {
			if addr.Prefix.Addr().Is4() == want.Address.Addr().Is4() {
				want.Address = addr.Prefix
				out = append(out, want)
				break
			}
		}
	}
	return out, nil
}
