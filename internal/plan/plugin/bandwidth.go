// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Bandwidth limits what an interface may send and receive. Shaping works on egress only. What the container sends is
// shaped on its interface; what it receives, on the node's end of the veth pair or, without a pair, on an ifb in the
// container to which all ingress traffic is redirected.
type Bandwidth struct{}

// rates are the configured rates, in bits per second, and bursts, in bits. 0 is no limit.
type rates struct {
	IngressRate  *uint64 `json:"ingressRate"`
	IngressBurst *uint64 `json:"ingressBurst"`
	EgressRate   *uint64 `json:"egressRate"`
	EgressBurst  *uint64 `json:"egressBurst"`
}

type bandwidthConf struct {
	RuntimeConfig struct {
		Bandwidth *rates `json:"bandwidth"`
	} `json:"runtimeConfig"`
}

// Type returns "bandwidth".
func (Bandwidth) Type() string { return "bandwidth" }

// Capabilities returns none: the plugin implements no optional interface.
func (Bandwidth) Capabilities() Capabilities { return Capabilities{} }

// Keys returns the configuration keys, those of the reference plugin.
func (Bandwidth) Keys() []string {
	return append(commonKeys(), "ingressRate", "ingressBurst", "egressRate", "egressBurst")
}

// IPAM returns nil: the plugin needs no addresses.
func (Bandwidth) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode parses and validates the configuration: it rejects limits that the kernel cannot enforce.
func (Bandwidth) Decode(conf model.PluginConf) (any, error) { return readBandwidth(conf) }

// limits are the limits of both directions, as the container sees them.
type limits struct{ ingress, egress limit }

// limit is a rate in bits per second and a burst in bits; zero is no limit.
type limit struct{ rate, burst uint64 }

// readBandwidth reads the rates. Those of the configuration itself take precedence over the runtime's.
func readBandwidth(conf model.PluginConf) (limits, error) {
	var c bandwidthConf
	var r rates
	if err := decode(conf, &r); err != nil {
		return limits{}, err
	}
	if err := decode(conf, &c); err != nil {
		return limits{}, err
	}
	at := ""
	if r == (rates{}) && c.RuntimeConfig.Bandwidth != nil {
		at, r = "runtimeConfig.bandwidth.", *c.RuntimeConfig.Bandwidth
	}
	in, err := readLimit(conf, at+"ingress", r.IngressRate, r.IngressBurst)
	if err != nil {
		return limits{}, err
	}
	out, err := readLimit(conf, at+"egress", r.EgressRate, r.EgressBurst)
	return limits{in, out}, err
}

func readLimit(conf model.PluginConf, at string, rate, burst *uint64) (limit, error) {
	var l limit
	if rate != nil {
		l.rate = *rate
	}
	if burst != nil {
		l.burst = *burst
	}
	const octet = 8
	switch {
	case l.rate != 0 && l.burst == 0:
		return l, model.Errorf(model.CodeInvalidConf, "set the burst, in bits",
			"plugin %s: %sRate %d without %sBurst",
			conf.Type, at, l.rate, at)
	case l.rate == 0 && l.burst != 0:
		return l, model.Errorf(model.CodeInvalidConf, "set the rate, in bits per second",
			"plugin %s: %sBurst %d without %sRate",
			conf.Type, at, l.burst, at)
	case l.burst/octet >= math.MaxUint32:
		return l, model.Errorf(model.CodeInvalidConf, "it is in bits; the kernel counts less than 4 GB",
			"plugin %s: %sBurst %d is 4 GB or more",
			conf.Type, at, l.burst)
	case l.rate != 0 && l.rate < octet:
		return l, model.Errorf(model.CodeInvalidConf, "it is in bits per second",
			"plugin %s: %sRate %d is less than a byte per second",
			conf.Type, at, l.rate)
	case l.burst != 0 && l.burst < octet:
		return l, model.Errorf(model.CodeInvalidConf, "it is in bits", "plugin %s: %sBurst %d is less than a byte",
			conf.Type, at, l.burst)
	}
	return l, nil
}

// Observe returns the queries for the interface and its peer on the node, unless the list plans them.
func (Bandwidth) Observe(in Input) ([]state.Query, error) {
	l, err := decoded(in, readBandwidth)
	if err != nil || l == (limits{}) {
		return nil, err
	}
	return pairQueries(in), nil
}

// Plan adds a token bucket filter to both ends of the pair, or to the interface and an ifb.
func (Bandwidth) Plan(in Input) (Step, error) {
	l, err := decoded(in, readBandwidth)
	if err != nil {
		return Step{}, err
	}
	prev, err := in.prev()
	if err != nil {
		return Step{}, err
	}
	step := Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key())}, Result: prev}
	if l == (limits{}) {
		return step, nil
	}
	e, err := in.pair()
	if err != nil {
		return Step{}, err
	}
	f := &step.Fragment
	shaped := func(s state.Space, link string) bool { // by an earlier plugin, whose qdisc is more specific
		return slices.ContainsFunc(s.Qdiscs, func(q state.Qdisc) bool { return q.Link == link && q.Kind == state.TBF })
	}
	if l.egress != (limit{}) && !shaped(in.Chain.Fragment.Pod, in.Request.IfName) {
		f.Pod.Qdiscs = append(f.Pod.Qdiscs, l.egress.bucket(in.Request.IfName))
	}
	switch {
	case l.ingress == (limit{}), shaped(in.Chain.Fragment.Host, e.host.Name):
	case e.host.Name != "":
		f.Host.Qdiscs = append(f.Host.Qdiscs, l.ingress.bucket(e.host.Name))
	default:
		name := ifbName(in.Request)
		f.Pod.Links = append(f.Pod.Links, state.Link{
			Name: name, Kind: state.Ifb, MAC: state.SeedMAC(seed(in.Request) + "/ifb/mac"), MTU: e.pod.MTU, Up: state.On(),
			Alias: Mark(in.Request.Key()),
		})
		f.Pod.Sysctls = append(f.Pod.Sysctls, noAddrGen(name))
		f.Pod.Qdiscs = append(f.Pod.Qdiscs, l.ingress.bucket(name),
			state.Qdisc{Link: in.Request.IfName, Kind: state.Ingress, Redirect: name})
	}
	return step, nil
}

// bucket returns the token bucket filter of a limit. Its queue holds the burst and what arrives in 25 ms.
func (l limit) bucket(link string) state.Qdisc {
	const octet, perSecond = 8, 40
	rate, burst := l.rate/octet, l.burst/octet
	return state.Qdisc{
		Link: link, Kind: state.TBF, Rate: rate, Burst: uint32(burst), //nolint:gosec // readLimit refuses 4 GB and more
		Limit: uint32(min(rate/perSecond+burst, math.MaxUint32)),
	}
}

// ifbName returns the name of the ifb of one of the container's interfaces. The name is unique in the container's
// namespace: each interface has its own ifb.
func ifbName(r model.Request) string {
	sum := sha256.Sum256([]byte(seed(r) + "/ifb"))
	return "ifb" + hex.EncodeToString(sum[:6])
}

// Warnings reports bursts that are smaller than a full packet: the kernel drops packets that are longer than the burst.
func (Bandwidth) Warnings(raw json.RawMessage) []model.Warning {
	const packet = 8 * (1500 + 14) // an Ethernet frame, in bits
	l, err := readBandwidth(model.PluginConf{Type: "bandwidth", Raw: raw})
	if err != nil {
		return nil // Decode reports it
	}
	var out []model.Warning
	for _, o := range []struct {
		key   string
		limit limit
	}{{"ingressBurst", l.ingress}, {"egressBurst", l.egress}} {
		if o.limit.burst != 0 && o.limit.burst < packet {
			out = append(out, model.Warning{
				Field: o.key,
				Msg:   fmt.Sprintf("%s %d is less than a packet of 1500 bytes: longer ones never pass", o.key, o.limit.burst),
				Hint:  fmt.Sprintf("make it %d bits or more", packet),
			})
		}
	}
	return out
}
