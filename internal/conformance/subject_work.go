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

func tuned(_ *world, p *pod) error {
	return inPod(p, p.ifName, func(l netlink.Link) error {
		if l.Attrs().MTU != tunedMTU {
			return fmt.Errorf("the MTU is %d, %d was asked for", l.Attrs().MTU, tunedMTU)
		}
		b, err := os.ReadFile(tunedSysctl)
		if got := strings.TrimSpace(string(b)); err == nil && got != tunedValue {
			return fmt.Errorf("the sysctl is %s, %s was asked for", got, tunedValue)
		}
		return err
	})
}

// letThrough wants the pod's address in the packet filter.
func letThrough(w *world, p *pod) error {
	v, err := ruleset(w.ctx, w.host)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(v, func(line string) bool { return strings.Contains(line, address(p)) }) {
		return fmt.Errorf("the pod's address %s is nowhere in the packet filter", address(p))
	}
	return nil
}

// ruleOf finds the rule for packets from the pod's address.
func ruleOf(p *pod) (*netlink.Rule, error) {
	list, err := netlink.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.Src != nil && r.Src.IP.String() == address(p) {
			return &r, nil
		}
	}
	return nil, errors.New("there is no rule for packets from " + address(p))
}

func ruled(_ *world, p *pod) error {
	return p.ns.Do(func() error {
		_, err := ruleOf(p)
		return err
	})
}

func unrule(_ *world, p *pod) error {
	return p.ns.Do(func() error {
		r, err := ruleOf(p)
		if err != nil {
			return err
		}
		return netlink.RuleDel(r)
	})
}

func enslaved(_ *world, p *pod) error {
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
