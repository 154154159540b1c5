// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// BGP's kinds are Calico's, in both of its API groups, and weft's own of the same schema.

// BGPConfigurations are the settings of all nodes, and of single ones.
func BGPConfigurations() []store.Kind { return bgpKinds("BGPConfiguration", "bgpconfigurations") }

// BGPPeers are the peers of nodes.
func BGPPeers() []store.Kind { return bgpKinds("BGPPeer", "bgppeers") }

// BGPFilters select the routes that are announced to peers, and those that are learned from them.
func BGPFilters() []store.Kind { return bgpKinds("BGPFilter", "bgpfilters") }

func bgpKinds(kind, resource string) []store.Kind {
	return append(kinds(kind, resource, false),
		store.Kind{Group: store.Group, Version: "v1alpha1", Kind: kind, Resource: resource})
}

// BGPKinds are all of them.
func BGPKinds() []store.Kind { return slices.Concat(BGPConfigurations(), BGPPeers(), BGPFilters()) }

// IsBGPConfiguration, IsBGPPeer and IsBGPFilter report whether the key is of that kind.
func IsBGPConfiguration(k store.Key) bool { return of(k, BGPConfigurations()) }

// IsBGPPeer reports whether the key is a peer.
func IsBGPPeer(k store.Key) bool { return of(k, BGPPeers()) }

// IsBGPFilter reports whether the key is a filter.
func IsBGPFilter(k store.Key) bool { return of(k, BGPFilters()) }

// asNumber is a number, or a text as "64512" or "1.10".
type asNumber uint32

func (n *asNumber) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	if text == "null" || text == "0" || text == "" {
		return nil
	}
	as, ok := store.ASNumber(text)
	if !ok {
		return fmt.Errorf("AS number %s is not between 1 and 4294967295", b)
	}
	*n = asNumber(as)
	return nil
}

type secretRef struct {
	Key *struct {
		Name string `json:"name"`
		Key  string `json:"key"`
	} `json:"secretKeyRef"`
}

func (r *secretRef) read(o store.Object, field string) (model.SecretKey, error) {
	switch {
	case r == nil:
		return model.SecretKey{}, nil
	case r.Key == nil || r.Key.Name == "" || r.Key.Key == "":
		return model.SecretKey{}, invalid(o, "write secretKeyRef with the name of a Secret and its key", "%s has no secretKeyRef", field)
	}
	return model.SecretKey(*r.Key), nil
}

type cidrEntry struct {
	CIDR string `json:"cidr"`
}

// duration reads seconds of a text as "120s"; 0 for an empty one.
func duration(o store.Object, field, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > 4095*time.Second {
		return 0, invalid(o, `write for example "120s"`, "%s %q is no duration from 1s to 4095s", field, text)
	}
	return int(d / time.Second), nil
}

// BGPConfiguration reads an object of that kind. Warnings are fields that weft does not have.
func BGPConfiguration(o store.Object) (model.BGPConfiguration, []model.Warning, error) {
	var in struct {
		Spec struct {
			Mesh        *bool       `json:"nodeToNodeMeshEnabled"`
			ASNumber    asNumber    `json:"asNumber"`
			ListenPort  int         `json:"listenPort"`
			BindMode    string      `json:"bindMode"`
			ClusterIPs  []cidrEntry `json:"serviceClusterIPs"`
			ExternalIPs []cidrEntry `json:"serviceExternalIPs"`
			LBIPs       []cidrEntry `json:"serviceLoadBalancerIPs"`
			Aggregation string      `json:"serviceLoadBalancerAggregation"`
			Communities []struct {
				Name  string `json:"name"`
				Value string `json:"value"`
			} `json:"communities"`
			Advertisements []struct {
				CIDR        string   `json:"cidr"`
				Communities []string `json:"communities"`
			} `json:"prefixAdvertisements"`
			MeshPassword       *secretRef `json:"nodeMeshPassword"`
			MeshRestart        string     `json:"nodeMeshMaxRestartTime"`
			IgnoredInterfaces  []string   `json:"ignoredInterfaces"`
			LocalPeering4      string     `json:"localWorkloadPeeringIPV4"`
			LocalPeering6      string     `json:"localWorkloadPeeringIPV6"`
			ProgramClusterRtes string     `json:"programClusterRoutes"`
			LogSeverity        string     `json:"logSeverityScreen"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return model.BGPConfiguration{}, nil, err
	}
	s := in.Spec
	out := model.BGPConfiguration{
		Name: o.Key.Name, Mesh: s.Mesh, ASN: uint32(s.ASNumber), ListenPort: s.ListenPort, BindNodeIP: s.BindMode == "NodeIP",
		NoAggregation: s.Aggregation == "Disabled",
	}
	if s.ListenPort < 0 || s.ListenPort > 65535 {
		return out, nil, invalid(o, "write a TCP port, or leave it out for 179", "spec.listenPort %d is no port", s.ListenPort)
	}
	for _, list := range []struct {
		field string
		in    []cidrEntry
		out   *[]netip.Prefix
	}{
		{"serviceClusterIPs", s.ClusterIPs, &out.ServiceClusterIPs},
		{"serviceExternalIPs", s.ExternalIPs, &out.ServiceExternalIPs},
		{"serviceLoadBalancerIPs", s.LBIPs, &out.ServiceLoadBalancerIPs},
	} {
		for i, e := range list.in {
			p, err := prefix(o, fmt.Sprintf("spec.%s[%d].cidr", list.field, i), e.CIDR)
			if err != nil {
				return out, nil, err
			}
			*list.out = append(*list.out, p)
		}
	}
	named := map[string]string{}
	for i, c := range s.Communities {
		if !IsCommunity(c.Value) {
			return out, nil, invalid(o, `write for example "65000:100"`, "spec.communities[%d].value %q is no community", i, c.Value)
		}
		named[c.Name] = c.Value
	}
	for i, a := range s.Advertisements {
		p, err := prefix(o, fmt.Sprintf("spec.prefixAdvertisements[%d].cidr", i), a.CIDR)
		if err != nil {
			return out, nil, err
		}
		adv := model.BGPAdvertised{CIDR: p}
		for j, c := range a.Communities {
			if v, ok := named[c]; ok {
				c = v
			} else if !IsCommunity(c) {
				return out, nil, invalid(o, `write "aa:nn", or a name of spec.communities`,
					"spec.prefixAdvertisements[%d].communities[%d] %q is no community", i, j, c)
			}
			adv.Communities = append(adv.Communities, c)
		}
		out.Advertised = append(out.Advertised, adv)
	}
	var err error
	if out.MeshPassword, err = s.MeshPassword.read(o, "spec.nodeMeshPassword"); err != nil {
		return out, nil, err
	}
	if out.MeshRestartTime, err = duration(o, "spec.nodeMeshMaxRestartTime", s.MeshRestart); err != nil {
		return out, nil, err
	}
	switch s.BindMode {
	case "", "None", "NodeIP":
	default:
		return out, nil, invalid(o, "write None or NodeIP", "spec.bindMode %q is not known", s.BindMode)
	}
	switch s.Aggregation {
	case "", "Enabled", "Disabled":
	default:
		return out, nil, invalid(o, "write Enabled or Disabled", "spec.serviceLoadBalancerAggregation %q is not known", s.Aggregation)
	}
	warnings := unknownFields(o, s)
	warn := func(set bool, field, hint string) {
		if set {
			warnings = append(warnings, model.Warning{Field: "spec." + field, Msg: "weft does not have it", Hint: hint})
		}
	}
	warn(len(s.IgnoredInterfaces) > 0, "ignoredInterfaces", "weft announces no addresses of interfaces: leave it out")
	warn(s.LocalPeering4+s.LocalPeering6 != "", "localWorkloadPeeringIPV4", "pods cannot be peers of their node")
	warn(s.LogSeverity != "" && s.LogSeverity != "Info", "logSeverityScreen", "weft-bgp has the flag -log-level")
	warn(s.ProgramClusterRtes != "" && s.ProgramClusterRtes != "Enabled", "programClusterRoutes", "leave it out")
	return out, warnings, nil
}

// unknownFields returns a warning for each field of an object's spec that the type of a spec does not have: what is
// ignored must not be ignored silently.
func unknownFields(o store.Object, spec any) (out []model.Warning) {
	var in struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if json.Unmarshal(o.Raw, &in) != nil {
		return nil
	}
	for i := range reflect.TypeOf(spec).NumField() {
		delete(in.Spec, reflect.TypeOf(spec).Field(i).Tag.Get("json"))
	}
	for _, name := range slices.Sorted(maps.Keys(in.Spec)) {
		out = append(out, model.Warning{Field: "spec." + name, Msg: "weft does not have it", Hint: "it has no effect: leave it out"})
	}
	return out
}

// IsCommunity reports whether a text is a community (RFC 1997), "aa:nn", or a large one (RFC 8092), "aa:nn:mm".
func IsCommunity(text string) bool {
	parts := strings.Split(text, ":")
	bits := 16
	if len(parts) == 3 {
		bits = 32
	}
	if len(parts) != 2 && len(parts) != 3 {
		return false
	}
	return !slices.ContainsFunc(parts, func(p string) bool {
		_, err := strconv.ParseUint(p, 10, bits)
		return err != nil
	})
}

// BGPPeer reads an object of that kind. Warnings are fields that weft does not have.
func BGPPeer(o store.Object) (model.BGPPeer, []model.Warning, error) {
	p, warnings, err := bgpPeer(o)
	if err != nil {
		return model.BGPPeer{}, nil, err
	}
	return p, warnings, nil
}

func bgpPeer(o store.Object) (model.BGPPeer, []model.Warning, error) {
	var in struct {
		Spec struct {
			Node                  string     `json:"node"`
			NodeSelector          string     `json:"nodeSelector"`
			PeerIP                string     `json:"peerIP"`
			Interface             string     `json:"interface"`
			ASNumber              asNumber   `json:"asNumber"`
			LocalASNumber         asNumber   `json:"localASNumber"`
			PeerSelector          string     `json:"peerSelector"`
			LocalWorkloadSelector string     `json:"localWorkloadSelector"`
			KeepOriginalNextHop   bool       `json:"keepOriginalNextHop"`
			NextHopMode           string     `json:"nextHopMode"`
			Password              *secretRef `json:"password"`
			SourceAddress         string     `json:"sourceAddress"`
			MaxRestartTime        string     `json:"maxRestartTime"`
			KeepaliveTime         string     `json:"keepaliveTime"`
			AllowOwnAS            int        `json:"numAllowedLocalASNumbers"`
			TTLSecurity           int        `json:"ttlSecurity"`
			ReachableBy           string     `json:"reachableBy"`
			ReversePeering        string     `json:"reversePeering"`
			Filters               []string   `json:"filters"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return model.BGPPeer{}, nil, err
	}
	s := in.Spec
	out := model.BGPPeer{
		Name: o.Key.Name, Node: s.Node, Interface: s.Interface, ASN: uint32(s.ASNumber), LocalASN: uint32(s.LocalASNumber),
		Filters:    s.Filters,
		AllowOwnAS: s.AllowOwnAS, TTLSecurity: s.TTLSecurity, AnySource: s.SourceAddress == "None", NextHop: model.BGPNextHopAuto,
	}
	if s.Node != "" && s.NodeSelector != "" {
		return out, nil, invalid(o, "leave one of them out", "spec.node %q and spec.nodeSelector %q are both set", s.Node, s.NodeSelector)
	}
	var err error
	if s.NodeSelector != "" {
		if out.NodeSelector, err = model.ParseExpression(s.NodeSelector); err != nil {
			return out, nil, invalid(o, "write for example \"rack == 'a'\"", "spec.nodeSelector: %w", err)
		}
	}
	switch {
	case s.LocalWorkloadSelector != "":
		return out, nil, invalid(o, "pods cannot be peers of their node", "spec.localWorkloadSelector is not supported")
	case s.ReachableBy != "":
		return out, nil, invalid(o, "add a static route to the peer to the nodes", "spec.reachableBy is not supported")
	case s.PeerIP != "" && s.PeerSelector != "":
		return out, nil, invalid(o, "leave one of them out", "spec.peerIP %q and spec.peerSelector %q are both set", s.PeerIP, s.PeerSelector)
	case s.Interface != "" && s.PeerIP+s.PeerSelector != "":
		return out, nil, invalid(o, "leave out spec.interface, or the other one: the address of a peer on an interface is found",
			"spec.interface %q and %s are both set", s.Interface, peerField(s.PeerIP, s.PeerSelector))
	case s.Interface != "":
		switch {
		case !linkName(s.Interface):
			return out, nil, invalid(o, `write for example "eth1"`, "spec.interface %q is not the name of an interface", s.Interface)
		case out.ASN == 0:
			return out, nil, invalid(o, "write the peer's AS number", "spec.asNumber is missing")
		}
	case s.PeerSelector != "":
		if out.PeerSelector, err = model.ParseExpression(s.PeerSelector); err != nil {
			return out, nil, invalid(o, "write for example \"has(route-reflector)\"", "spec.peerSelector: %w", err)
		}
	default:
		if out.Addr, out.Port, err = peerAddr(s.PeerIP); err != nil {
			return out, nil, invalid(o, `write for example "192.0.2.1" or "192.0.2.1:1790"`, "spec.peerIP %q: %w", s.PeerIP, err)
		}
		if out.ASN == 0 {
			return out, nil, invalid(o, "write the peer's AS number", "spec.asNumber is missing")
		}
	}
	switch model.BGPNextHop(s.NextHopMode) {
	case "":
		if s.KeepOriginalNextHop {
			out.NextHop = model.BGPNextHopKeep
		}
	case model.BGPNextHopAuto, model.BGPNextHopSelf, model.BGPNextHopKeep:
		out.NextHop = model.BGPNextHop(s.NextHopMode)
	default:
		return out, nil, invalid(o, "write Auto, Self or Keep", "spec.nextHopMode %q is not known", s.NextHopMode)
	}
	switch s.ReversePeering {
	case "", "Auto":
	case "Manual":
		out.OneSided = true
	default:
		return out, nil, invalid(o, "write Auto or Manual", "spec.reversePeering %q is not known", s.ReversePeering)
	}
	switch s.SourceAddress {
	case "", "UseNodeIP", "None":
	default:
		return out, nil, invalid(o, "write UseNodeIP or None", "spec.sourceAddress %q is not known", s.SourceAddress)
	}
	if s.AllowOwnAS < 0 || s.AllowOwnAS > 255 || s.TTLSecurity < 0 || s.TTLSecurity > 255 {
		return out, nil, invalid(o, "write a number from 0 to 255", "spec.numAllowedLocalASNumbers %d or spec.ttlSecurity %d", s.AllowOwnAS, s.TTLSecurity)
	}
	if out.Password, err = s.Password.read(o, "spec.password"); err != nil {
		return out, nil, err
	}
	if out.RestartTime, err = duration(o, "spec.maxRestartTime", s.MaxRestartTime); err != nil {
		return out, nil, err
	}
	out.KeepaliveTime, err = duration(o, "spec.keepaliveTime", s.KeepaliveTime)
	return out, unknownFields(o, s), err
}

// peerField returns the field of an object that names its peer.
func peerField(addr, selector string) string {
	if addr != "" {
		return fmt.Sprintf("spec.peerIP %q", addr)
	}
	return fmt.Sprintf("spec.peerSelector %q", selector)
}

// linkName reports whether the kernel could have an interface of that name.
func linkName(text string) bool {
	return len(text) < 16 && text != "." && text != ".." && !strings.ContainsAny(text, "/: %\t\n")
}

// peerAddr reads an address that may have a port.
func peerAddr(text string) (netip.Addr, int, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Unmap(), 0, nil
	}
	ap, err := netip.ParseAddrPort(text)
	return ap.Addr().Unmap(), int(ap.Port()), err
}

type filterRule struct {
	CIDR         string `json:"cidr"`
	Operator     string `json:"matchOperator"`
	PrefixLength *struct {
		Min *int `json:"min"`
		Max *int `json:"max"`
	} `json:"prefixLength"`
	Source      string `json:"source"`
	Interface   string `json:"interface"`
	PeerType    string `json:"peerType"`
	Communities *struct {
		Values []string `json:"values"`
	} `json:"communities"`
	ASPathPrefix []asNumber `json:"asPathPrefix"`
	Priority     *int       `json:"priority"`
	Action       string     `json:"action"`
	Operations   []struct {
		AddCommunity *struct {
			Value string `json:"value"`
		} `json:"addCommunity"`
		PrependASPath *struct {
			Prefix []asNumber `json:"prefix"`
		} `json:"prependASPath"`
		SetPriority *struct {
			Value int `json:"value"`
		} `json:"setPriority"`
	} `json:"operations"`
}

// BGPFilter reads an object of that kind.
func BGPFilter(o store.Object) (model.BGPFilter, error) {
	var in struct {
		Spec struct {
			ExportV4 []filterRule `json:"exportV4"`
			ExportV6 []filterRule `json:"exportV6"`
			ImportV4 []filterRule `json:"importV4"`
			ImportV6 []filterRule `json:"importV6"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return model.BGPFilter{}, err
	}
	out := model.BGPFilter{Name: o.Key.Name}
	if err := knownFields(o); err != nil {
		return out, err
	}
	for _, list := range []struct {
		field string
		in    []filterRule
		six   bool
		out   *[]model.BGPFilterRule
	}{
		{"exportV4", in.Spec.ExportV4, false, &out.Export}, {"exportV6", in.Spec.ExportV6, true, &out.Export},
		{"importV4", in.Spec.ImportV4, false, &out.Import}, {"importV6", in.Spec.ImportV6, true, &out.Import},
	} {
		for i, r := range list.in {
			rule, err := r.read(o, fmt.Sprintf("spec.%s[%d]", list.field, i), list.six)
			if err != nil {
				return out, err
			}
			*list.out = append(*list.out, rule)
		}
	}
	return out, nil
}

// knownFields returns an error for a field of a filter that weft does not have: without it a rule would match more.
func knownFields(o store.Object) error {
	var in struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := decode(o, &in); err != nil || len(in.Spec) == 0 {
		return err
	}
	var rules struct {
		ExportV4, ExportV6, ImportV4, ImportV6 []filterRule
	}
	d := json.NewDecoder(bytes.NewReader(in.Spec))
	d.DisallowUnknownFields()
	if err := d.Decode(&rules); err != nil {
		return invalid(o, "leave it out", "spec: %w", err)
	}
	return nil
}

// read reads a rule. One with a condition that weft does not have is an error: without it the rule would match more.
func (r filterRule) read(o store.Object, field string, six bool) (model.BGPFilterRule, error) {
	out := model.BGPFilterRule{Six: six, MinLength: -1, MaxLength: -1, PeerType: r.PeerType, Remote: r.Source == "RemotePeers"}
	bad := func(hint, format string, args ...any) (model.BGPFilterRule, error) {
		return out, invalid(o, hint, field+"."+format, args...)
	}
	switch {
	case r.Interface != "":
		return bad("match by cidr", "interface %q is not supported", r.Interface)
	case r.Priority != nil:
		return bad("match by cidr", "priority %d is not supported", *r.Priority)
	case r.Source != "" && r.Source != "RemotePeers":
		return bad("write RemotePeers, or leave it out", "source %q is not known", r.Source)
	case r.PeerType != "" && r.PeerType != "eBGP" && r.PeerType != "iBGP":
		return bad("write eBGP or iBGP, or leave it out", "peerType %q is not known", r.PeerType)
	}
	switch r.Action {
	case "Accept":
		out.Accept = true
	case "Reject":
	default:
		return bad("write Accept or Reject", "action %q is not known", r.Action)
	}
	if r.CIDR != "" {
		p, err := prefix(o, field+".cidr", r.CIDR)
		if err != nil {
			return out, err
		}
		if p.Addr().Is6() != six {
			return bad("write it in the list of its family", "cidr %q is of the other family", r.CIDR)
		}
		if !slices.Contains([]string{"Equal", "NotEqual", "In", "NotIn"}, r.Operator) {
			return bad("write Equal, NotEqual, In or NotIn", "matchOperator %q is not known", r.Operator)
		}
		out.CIDR, out.Match = p, r.Operator
	}
	bits := 32
	if six {
		bits = 128
	}
	if l := r.PrefixLength; l != nil {
		for _, b := range []struct {
			name string
			in   *int
			out  *int
		}{{"min", l.Min, &out.MinLength}, {"max", l.Max, &out.MaxLength}} {
			if b.in == nil {
				continue
			}
			if *b.in < 0 || *b.in > bits {
				return bad(fmt.Sprintf("write a number from 0 to %d", bits), "prefixLength.%s %d", b.name, *b.in)
			}
			*b.out = *b.in
		}
	}
	if r.Communities != nil {
		out.Communities = r.Communities.Values
	}
	for _, c := range out.Communities {
		if !IsCommunity(c) {
			return bad(`write for example "65000:100"`, "communities %q is no community", c)
		}
	}
	for _, as := range r.ASPathPrefix {
		out.ASPathPrefix = append(out.ASPathPrefix, uint32(as))
	}
	for i, op := range r.Operations {
		switch {
		case op.AddCommunity != nil && IsCommunity(op.AddCommunity.Value):
			out.AddCommunities = append(out.AddCommunities, op.AddCommunity.Value)
		case op.PrependASPath != nil && len(op.PrependASPath.Prefix) > 0:
			for _, as := range op.PrependASPath.Prefix {
				out.Prepend = append(out.Prepend, uint32(as))
			}
		default:
			return bad("write addCommunity or prependASPath", "operations[%d] is not supported", i)
		}
	}
	return out, nil
}

var _ json.Unmarshaler = (*asNumber)(nil)
