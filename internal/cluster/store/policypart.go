// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// selectorOf decodes a selector; a missing one selects everything.
func selectorOf(field string, raw json.RawMessage) (model.Selector, error) {
	var s model.Selector
	if len(raw) == 0 {
		return s, nil
	}
	if err := strictly(raw, &s); err != nil {
		return s, fmt.Errorf("%s: %w", field, err)
	}
	for i, r := range s.Requirements {
		at := fmt.Sprintf("%s.matchExpressions[%d]", field, i)
		switch r.Op {
		case model.SelectIn, model.SelectNotIn:
			if len(r.Values) == 0 {
				return s, fmt.Errorf("%s: operator %s needs values", at, r.Op)
			}
		case model.SelectExists, model.SelectDoesNotExist:
			if len(r.Values) > 0 {
				return s, fmt.Errorf("%s: operator %s takes no values", at, r.Op)
			}
		default:
			return s, fmt.Errorf("%s.operator %q is none of In, NotIn, Exists, DoesNotExist", at, r.Op)
		}
		if r.Key == "" {
			return s, fmt.Errorf("%s.key is missing", at)
		}
	}
	return s, nil
}

// networkPeer decodes a peer of a NetworkPolicy.
func networkPeer(field string, raw json.RawMessage, namespace string) (model.PolicyPeer, error) {
	var in struct {
		Pods       json.RawMessage `json:"podSelector"`
		Namespaces json.RawMessage `json:"namespaceSelector"`
		Block      *struct {
			CIDR   string   `json:"cidr"`
			Except []string `json:"except"`
		} `json:"ipBlock"`
	}
	if err := strictly(raw, &in); err != nil {
		return model.PolicyPeer{}, fmt.Errorf("%s: %w", field, err)
	}
	pods, namespaces := isSet(in.Pods), isSet(in.Namespaces)
	switch {
	case in.Block != nil && (pods || namespaces):
		return model.PolicyPeer{}, fmt.Errorf("%s has both ipBlock and a selector: only one of them is allowed", field)
	case in.Block != nil:
		b, err := blockOf(field+".ipBlock", in.Block.CIDR, in.Block.Except)
		return model.PolicyPeer{Block: &b}, err
	case !pods && !namespaces:
		return model.PolicyPeer{}, fmt.Errorf("%s has neither podSelector nor namespaceSelector nor ipBlock", field)
	}
	peer, err := &model.PodPeer{}, error(nil)
	if namespaces {
		peer.Namespaces, err = selectorOf(field+".namespaceSelector", in.Namespaces)
	} else {
		peer.Namespace = namespace
	}
	if err == nil && pods {
		peer.Pods, err = selectorOf(field+".podSelector", in.Pods)
	}
	return model.PolicyPeer{Pods: peer}, err
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// blockOf decodes an ipBlock.
func blockOf(field, cidr string, except []string) (model.IPBlock, error) {
	var b model.IPBlock
	var err error
	if b.CIDR, err = blockPrefix(field+".cidr", cidr); err != nil {
		return b, err
	}
	for i, e := range except {
		at := fmt.Sprintf("%s.except[%d]", field, i)
		p, err := blockPrefix(at, e)
		if err != nil {
			return b, err
		}
		if p.Bits() < b.CIDR.Bits() || !b.CIDR.Overlaps(p) {
			return b, fmt.Errorf("%s %q is not inside of %s", at, e, b.CIDR)
		}
		b.Except = append(b.Except, p)
	}
	return b, nil
}

// blockPrefix parses a prefix as Kubernetes does: host bits are ignored.
func blockPrefix(field, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%s %q is no prefix like 10.0.0.0/8", field, s)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, fmt.Errorf("%s %q is an IPv4-mapped IPv6 prefix", field, s)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// networkPort decodes a port of a NetworkPolicy.
func networkPort(field string, raw json.RawMessage) (model.PolicyPort, error) {
	var in struct {
		Protocol *string         `json:"protocol"`
		Port     json.RawMessage `json:"port"`
		EndPort  *int64          `json:"endPort"`
	}
	if err := strictly(raw, &in); err != nil {
		return model.PolicyPort{}, fmt.Errorf("%s: %w", field, err)
	}
	out := model.PolicyPort{Protocol: model.TCP}
	if in.Protocol != nil {
		out.Protocol = model.Protocol(*in.Protocol)
	}
	switch out.Protocol {
	case model.TCP, model.UDP, model.SCTP:
	default:
		return out, fmt.Errorf("%s.protocol %q is none of TCP, UDP, SCTP", field, out.Protocol)
	}
	if !isSet(in.Port) {
		if in.EndPort != nil {
			return out, fmt.Errorf("%s.endPort %d is set without port", field, *in.EndPort)
		}
		return out, nil
	}
	if json.Unmarshal(in.Port, &out.Name) == nil {
		if err := checkPortName(out.Name); err != nil {
			return out, fmt.Errorf("%s.port %q: %w", field, out.Name, err)
		}
		if in.EndPort != nil {
			return out, fmt.Errorf("%s.endPort %d is set with a port by name, %q", field, *in.EndPort, out.Name)
		}
		return out, nil
	}
	var first int64
	if err := json.Unmarshal(in.Port, &first); err != nil {
		return out, fmt.Errorf("%s.port %s is neither a number nor a name", field, in.Port)
	}
	last := first
	if in.EndPort != nil {
		last = *in.EndPort
	}
	var err error
	out.First, out.Last, err = portNumbers(field+".port", first, last)
	return out, err
}

func portNumbers(field string, first, last int64) (uint16, uint16, error) {
	switch {
	case first < 1 || first > 65535:
		return 0, 0, fmt.Errorf("%s %d is no port from 1 to 65535", field, first)
	case last < first || last > 65535:
		return 0, 0, fmt.Errorf("%s %d: the range ends at %d, want %d to 65535", field, first, last, first)
	}
	return uint16(first), uint16(last), nil //nolint:gosec // both are ports, see above
}

// checkPortName returns an error if s is no valid port name.
func checkPortName(s string) error {
	ok := len(s) <= 15 && label.MatchString(s) && !strings.Contains(s, "--") &&
		strings.ContainsFunc(s, func(r rune) bool { return r >= 'a' && r <= 'z' })
	if !ok {
		return errors.New("a port's name has at most 15 lower case letters, digits and '-', among them a letter")
	}
	return nil
}
