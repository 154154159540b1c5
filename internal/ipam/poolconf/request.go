// SPDX-License-Identifier: Apache-2.0

package poolconf

import (
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/model"
)

// readRequests reads the addresses that the runtime requests, one of each range: from CNI_ARGS, args.cni.ips and
// runtimeConfig.ips, without duplicates.
func (s *Settings) readRequests(req ipam.Request, o outer) error {
	if err := ipam.CheckArgs(req.Args); err != nil {
		return err
	}
	for item := range strings.SplitSeq(ipam.Arg(req.Args, "IP"), ",") {
		if strings.TrimSpace(item) != "" {
			if err := s.addRequested("environment: CNI_ARGS IP", item, model.CodeInvalidEnv); err != nil {
				return err
			}
		}
	}
	for _, v := range o.Args.CNI.IPs {
		if err := s.addRequested("args.cni.ips", v, model.CodeInvalidConf); err != nil {
			return err
		}
	}
	for _, v := range o.RuntimeConfig.IPs {
		if err := s.addRequested("runtimeConfig.ips", v, model.CodeInvalidConf); err != nil {
			return err
		}
	}
	if gw := ipam.Arg(req.Args, "GATEWAY"); gw != "" && !s.Gateway.IsValid() {
		a, err := netip.ParseAddr(strings.TrimSpace(gw))
		if err != nil {
			return model.Errorf(model.CodeInvalidEnv, "an address, for example 10.1.0.1",
				"environment: CNI_ARGS GATEWAY %q is no address", gw)
		}
		s.Gateway = a.Unmap()
	}
	if name := o.Args.CNI.Claim; name != "" {
		if len(s.Requested) > 0 {
			return ipam.Invalid("leave ips out: the claim has the addresses",
				"ipam-claim-reference %q and ips %s: only one of them can request the address", name, s.Requested[0])
		}
		s.Claim = ipam.Arg(req.Args, "K8S_POD_NAMESPACE") + "/" + name
	}
	return nil
}

// CheckClaim rejects a claim without a namespace. A configuration is also read without a pod, where that is no error.
func (s *Settings) CheckClaim() error {
	if name, without := strings.CutPrefix(s.Claim, "/"); without {
		return model.Errorf(model.CodeInvalidEnv, "",
			"ipam-claim-reference %q: CNI_ARGS does not say the pod's namespace (K8S_POD_NAMESPACE)", name)
	}
	return nil
}

// addRequested adds an address once: Multus passes each in two ways.
func (s *Settings) addRequested(field, value string, code model.Code) error {
	a, err := ipam.ParseAddr(value)
	if err != nil {
		return model.Errorf(code, "an address, for example 10.1.0.5", "%s %q is no address", field, strings.TrimSpace(value))
	}
	for _, have := range s.Requested {
		if have == a {
			return nil
		}
	}
	s.Requested = append(s.Requested, a)
	return nil
}

// Assign sets each requested address in the want that it is for.
func (s *Settings) Assign() error {
	for _, a := range s.Requested {
		found, near := false, ""
		for i := range s.Wants {
			w := &s.Wants[i]
			if w.Addr.IsValid() || !w.Network.Contains(a) {
				continue
			}
			near = w.ID()
			if addrspan.In(w.Spans, a) {
				w.Addr, found = a, true
				break
			}
		}
		if found || s.isStatic(a) {
			continue
		}
		if near != "" {
			return ipam.Invalid("choose one of these", "ips: address %s is not among the allocatable addresses: %s", a,
				near)
		}
		return ipam.Invalid("ask for one address of each range at most",
			"ips: address %s is in no range that is left for this attachment: %s", a, s.ranges())
	}
	return nil
}

func (s *Settings) isStatic(a netip.Addr) bool {
	for _, ip := range s.Static {
		if ip.Address.Addr() == a {
			return true
		}
	}
	return false
}

func (s *Settings) ranges() string {
	var words []string
	for _, w := range s.Wants {
		words = append(words, w.Network.String())
	}
	return strings.Join(words, ", ")
}
