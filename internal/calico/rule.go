// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
)

// ruleReader decodes the rules of a policy and collects errors.
type ruleReader struct {
	namespace string // of the policy; empty for a GlobalNetworkPolicy
	egress    bool   // the rules are for egress
	errors    []string
}

func (r *ruleReader) fail(err error) { r.errors = append(r.errors, err.Error()) }

// rule is a rule in JSON. A field that is not in it is an error: it could narrow what the rule matches.
type rule struct {
	Action      string          `json:"action"`
	IPVersion   *int            `json:"ipVersion"`
	Protocol    json.RawMessage `json:"protocol"`
	NotProtocol json.RawMessage `json:"notProtocol"`
	ICMP        *icmp           `json:"icmp"`
	NotICMP     *icmp           `json:"notICMP"`
	Source      end             `json:"source"`
	Destination end             `json:"destination"`
	HTTP        json.RawMessage `json:"http"`
	Metadata    json.RawMessage `json:"metadata"` // comments
}

type icmp struct {
	Type *int `json:"type"`
	Code *int `json:"code"`
}

// end is one end of a connection in JSON.
type end struct {
	Nets              []string          `json:"nets"`
	NotNets           []string          `json:"notNets"`
	Selector          string            `json:"selector"`
	NotSelector       string            `json:"notSelector"`
	NamespaceSelector string            `json:"namespaceSelector"`
	Services          *service          `json:"services"`
	ServiceAccounts   *accounts         `json:"serviceAccounts"`
	Ports             []json.RawMessage `json:"ports"`
	NotPorts          []json.RawMessage `json:"notPorts"`
}

type accounts struct {
	Names    []string `json:"names"`
	Selector string   `json:"selector"`
}

type service struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// rules decodes rules; each keeps its number.
func (r *ruleReader) rules(field string, in []json.RawMessage) []model.PolicyRule {
	out := make([]model.PolicyRule, 0, len(in))
	for i, raw := range in {
		rule, err := r.rule(fmt.Sprintf("%s[%d]", field, i), raw)
		if err != nil {
			r.fail(err)
			rule = closed(rule.Action)
		}
		out = append(out, rule)
	}
	return out
}

// closed returns what stands for an invalid rule: a rule that would allow, or only log, matches nothing.
func closed(action model.PolicyAction) model.PolicyRule {
	if action == model.PolicyAccept || action == model.PolicyLog {
		return model.PolicyRule{Action: model.PolicyAccept}
	}
	return model.PolicyRule{Action: model.PolicyDeny, AnyPeer: true, AnyPort: true}
}

// actions are the model's actions for Calico's words.
func actions() map[string]model.PolicyAction {
	return map[string]model.PolicyAction{
		"Allow": model.PolicyAccept, "Deny": model.PolicyDeny, "Pass": model.PolicyPass, "Log": model.PolicyLog,
	}
}

func (r *ruleReader) rule(at string, raw json.RawMessage) (model.PolicyRule, error) {
	var action struct {
		Action string `json:"action"`
	}
	_ = json.Unmarshal(raw, &action) // the decoder below reports an error
	out := model.PolicyRule{Action: actions()[action.Action]}
	if out.Action == "" {
		return out, fmt.Errorf("%s.action %q is none of Allow, Deny, Log, Pass", at, action.Action)
	}
	var in rule
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return out, fmt.Errorf("%s: %w", at, err)
	}
	if isSet(in.HTTP) {
		return out, fmt.Errorf("%s.http: a match of HTTP needs a proxy, and weft has none", at)
	}
	c, err := r.conditions(at, in)
	out.Conditions = c
	return out, err
}

func (r *ruleReader) conditions(at string, in rule) (*model.RuleConditions, error) {
	var c model.RuleConditions
	var err error
	if in.IPVersion != nil {
		if c.Family = *in.IPVersion; c.Family != 4 && c.Family != 6 {
			return nil, fmt.Errorf("%s.ipVersion %d is neither 4 nor 6", at, c.Family)
		}
	}
	if c.Protocol, err = protocol(at+".protocol", in.Protocol); err != nil {
		return nil, err
	}
	if c.NotProtocol, err = protocol(at+".notProtocol", in.NotProtocol); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		field string
		in    *icmp
		out   **model.ICMPMatch
	}{{at + ".icmp", in.ICMP, &c.ICMP}, {at + ".notICMP", in.NotICMP, &c.NotICMP}} {
		if *m.out, err = icmpMatch(m.field, m.in, c.Protocol); err != nil {
			return nil, err
		}
	}
	if c.Source, err = r.end(at+".source", in.Source, c.Protocol, !r.egress); err != nil {
		return nil, err
	}
	if c.Destination, err = r.end(at+".destination", in.Destination, c.Protocol, r.egress); err != nil {
		return nil, err
	}
	return &c, nil
}

// protocols are the protocols with names, in lower case.
func protocols() map[string]uint8 {
	return map[string]uint8{
		"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP, "udplite": unix.IPPROTO_UDPLITE,
		"icmp": unix.IPPROTO_ICMP, "icmpv6": unix.IPPROTO_ICMPV6,
	}
}

// protocol decodes a protocol: a name or a number; 0: not set.
func protocol(field string, raw json.RawMessage) (uint8, error) {
	if !isSet(raw) {
		return 0, nil
	}
	text := strings.Trim(string(raw), `"`)
	if n, is := protocols()[strings.ToLower(text)]; is {
		return n, nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%s %s is neither one of TCP, UDP, SCTP, UDPLite, ICMP, ICMPv6 nor a number from 1 to 255", field, raw)
	}
	return uint8(n), nil
}

func icmpMatch(field string, in *icmp, protocol uint8) (*model.ICMPMatch, error) {
	if in == nil || in.Type == nil && in.Code == nil {
		return nil, nil
	}
	switch {
	case protocol != unix.IPPROTO_ICMP && protocol != unix.IPPROTO_ICMPV6:
		return nil, fmt.Errorf("%s needs protocol ICMP or ICMPv6", field)
	case in.Type == nil:
		return nil, fmt.Errorf("%s.code %d is set without type", field, *in.Code)
	case *in.Type < 0 || *in.Type > 254:
		return nil, fmt.Errorf("%s.type %d is none from 0 to 254", field, *in.Type)
	}
	out := &model.ICMPMatch{Type: uint8(*in.Type)} //nolint:gosec // see above
	if in.Code != nil {
		if *in.Code < 0 || *in.Code > 255 {
			return nil, fmt.Errorf("%s.code %d is none from 0 to 255", field, *in.Code)
		}
		code := uint8(*in.Code) //nolint:gosec // see above
		out.Code = &code
	}
	return out, nil
}

// end decodes the conditions on one end; other reports that it is not the policy's own.
func (r *ruleReader) end(at string, in end, protocol uint8, other bool) (out model.EndConditions, err error) {
	if out.Service, err = r.service(at, in, other); err != nil {
		return out, err
	}
	if out.Nets, err = nets(at+".nets", in.Nets); err != nil {
		return out, err
	}
	if out.NotNets, err = nets(at+".notNets", in.NotNets); err != nil {
		return out, err
	}
	if out.Ports, err = ports(at+".ports", in.Ports, protocol); err != nil {
		return out, err
	}
	if out.NotPorts, err = ports(at+".notPorts", in.NotPorts, protocol); err != nil {
		return out, err
	}
	if out.Peer, err = r.peer(at, in); err != nil || in.NotSelector == "" {
		return out, err
	}
	not, err := expression(at+".notSelector", in.NotSelector)
	switch {
	case err != nil:
		return out, err
	case out.Peer != nil: // of what the others select; addresses that nothing else selects do not matter
		out.Peer.Endpoints.Not = not
	default:
		out.NotPeer = &model.PodPeer{Endpoints: &model.EndpointSelector{Labels: *not}}
	}
	return out, nil
}

// service decodes the match of a Service's endpoints, nil if there is none. It is for the other end only, and instead of all
// that would match its address or its ports.
func (r *ruleReader) service(at string, in end, other bool) (*model.ServiceMatch, error) {
	s := in.Services
	if s == nil {
		return nil, nil
	}
	out := &model.ServiceMatch{Namespace: s.Namespace, Name: s.Name, Ports: r.egress}
	if out.Namespace == "" {
		out.Namespace = r.namespace
	}
	switch {
	case !other:
		return nil, fmt.Errorf("%s.services: a Service is matched as the source of ingress or the destination of egress", at)
	case out.Name == "":
		return nil, fmt.Errorf("%s.services.name is missing", at)
	case out.Namespace == "":
		return nil, fmt.Errorf("%s.services.namespace is missing: a GlobalNetworkPolicy has none of its own", at)
	case len(in.Nets)+len(in.NotNets)+len(in.Ports)+len(in.NotPorts) > 0 || in.Selector != "" || in.NotSelector != "" ||
		in.NamespaceSelector != "" || in.ServiceAccounts != nil:
		return nil, fmt.Errorf("%s.services is set together with nets, ports or selectors: write a rule for each", at)
	}
	return out, nil
}

// peer returns what an end's positive selectors select, nil if there are none. In a NetworkPolicy any selector, also the
// negated one, limits them to its own namespace, unless there is a selector of namespaces.
func (r *ruleReader) peer(at string, in end) (*model.PodPeer, error) {
	byAccount := in.ServiceAccounts != nil && (len(in.ServiceAccounts.Names) > 0 || in.ServiceAccounts.Selector != "")
	any := in.Selector != "" || in.NamespaceSelector != "" || byAccount
	own := r.namespace != "" && in.NamespaceSelector == "" && (any || in.NotSelector != "")
	if !any && !own {
		return nil, nil
	}
	e := &model.EndpointSelector{}
	out := &model.PodPeer{Endpoints: e}
	if own {
		out.Namespace = r.namespace
	}
	var err error
	if e.Labels, err = model.ParseExpression(in.Selector); err != nil {
		return nil, fmt.Errorf("%s.selector: %w", at, err)
	}
	if in.NamespaceSelector != "" {
		if err := selectNamespaces(e, at+".namespaceSelector", in.NamespaceSelector); err != nil {
			return nil, err
		}
	}
	if byAccount {
		e.ServiceAccounts = in.ServiceAccounts.Names
		if text := in.ServiceAccounts.Selector; text != "" {
			if e.ServiceAccountLabels, err = expression(at+".serviceAccounts.selector", text); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// nets parses prefixes; an address alone is one of its whole length.
func nets(field string, in []string) (out []netip.Prefix, err error) {
	for i, text := range in {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" {
				return nil, fmt.Errorf("%s[%d] %q is no prefix like 10.0.0.0/8", field, i, text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		if p.Addr().Is4In6() {
			return nil, fmt.Errorf("%s[%d] %q is an IPv4-mapped IPv6 prefix", field, i, text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// transports are the protocols with ports, by their numbers.
func transports() map[uint8]model.Protocol {
	return map[uint8]model.Protocol{
		unix.IPPROTO_TCP: model.TCP, unix.IPPROTO_UDP: model.UDP, unix.IPPROTO_SCTP: model.SCTP,
	}
}

// ports decodes ports: numbers, ranges "first:last", or names.
func ports(field string, in []json.RawMessage, protocol uint8) (out []model.PolicyPort, err error) {
	transport := transports()[protocol]
	for i, raw := range in {
		at, text := fmt.Sprintf("%s[%d]", field, i), strings.Trim(string(raw), `"`)
		p := model.PolicyPort{Protocol: transport}
		if strings.Trim(text, "0123456789:") != "" {
			if protocol != 0 && transport == "" {
				return nil, fmt.Errorf("%s %s: the rule's protocol has no ports", at, raw)
			}
			p.Name = text
			out = append(out, p)
			continue
		}
		if transport == "" {
			return nil, fmt.Errorf("%s %s needs protocol TCP, UDP or SCTP", at, raw)
		}
		first, last, isRange := strings.Cut(text, ":")
		if !isRange {
			last = first
		}
		a, errFirst := strconv.ParseUint(first, 10, 16)
		b, errLast := strconv.ParseUint(last, 10, 16)
		if errFirst != nil || errLast != nil || a > b || b == 0 {
			return nil, fmt.Errorf("%s %s is neither a port from 1 to 65535 nor a range like 8080:8090", at, raw)
		}
		p.First, p.Last = uint16(a), uint16(b)
		out = append(out, p)
	}
	return out, nil
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
