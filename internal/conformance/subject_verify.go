// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

const (
	tunedMTU    = 1400
	tunedValue  = "501"
	tunedSysctl = "/proc/sys/net/core/somaxconn"
)

func verifyTuning(_ *world, p *pod) error {
	return inPod(p, p.ifName, func(l netlink.Link) error {
		if l.Attrs().MTU != tunedMTU {
			return fmt.Errorf("the MTU is %d, %d was requested", l.Attrs().MTU, tunedMTU)
		}
		b, err := os.ReadFile(tunedSysctl)
		if got := strings.TrimSpace(string(b)); err == nil && got != tunedValue {
			return fmt.Errorf("the sysctl is %s, %s was requested", got, tunedValue)
		}
		return err
	})
}

// verifyFirewall checks that the packet filter has the pod's address.
func verifyFirewall(w *world, p *pod) error {
	v, err := ruleset(w.ctx, w.host)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(v, func(line string) bool { return strings.Contains(line, podAddress(p)) }) {
		return fmt.Errorf("the pod's address %s is not in the packet filter", podAddress(p))
	}
	return nil
}

// findRule returns the rule for packets from the pod's address.
func findRule(p *pod) (*netlink.Rule, error) {
	list, err := netlink.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.Src != nil && r.Src.IP.String() == podAddress(p) {
			return &r, nil
		}
	}
	return nil, errors.New("no rule for packets from " + podAddress(p))
}

func verifyRule(_ *world, p *pod) error {
	return p.ns.Do(func() error {
		_, err := findRule(p)
		return err
	})
}

func removeRule(_ *world, p *pod) error {
	return p.ns.Do(func() error {
		r, err := findRule(p)
		if err != nil {
			return err
		}
		return netlink.RuleDel(r)
	})
}

func verifyVRF(_ *world, p *pod) error {
	return inPod(p, p.ifName, func(l netlink.Link) error {
		if l.Attrs().MasterIndex == 0 {
			return errors.New("the interface is in no VRF")
		}
		m, err := netlink.LinkByIndex(l.Attrs().MasterIndex)
		if err == nil && m.Type() != "vrf" {
			return fmt.Errorf("the interface's master is a %s", m.Type())
		}
		return err
	})
}
