// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Features returns the features that Need can probe, each with the ip commands that need it.
func Features() map[string][]string {
	const lower = "link add lower type bridge"
	return map[string][]string{
		"bridge": {"link add probe type bridge"}, "dummy": {"link add probe type dummy"}, "ifb": {"link add probe type ifb"},
		"veth":      {"link add probe type veth peer name peer"},
		"vxlan":     {"link add probe type vxlan id 7 dstport 4789 local 127.0.0.1"},
		"macvlan":   {lower, "link add link lower probe type macvlan mode bridge"},
		"macvtap":   {lower, "link add link lower probe type macvtap mode bridge"},
		"ipvlan":    {lower, "link add link lower probe type ipvlan mode l3s"},
		"vlan":      {lower, "link add link lower name probe type vlan id 5"},
		"vrf":       {"link add probe type vrf table 7"},
		"wireguard": {"link add probe type wireguard"},
		"ipip":      {"link add probe type ipip local 127.0.0.1 remote 127.0.0.2"},
		"tap":       {"tuntap add probe mode tap"},
		// A VLAN-aware bridge.
		"vlan_filtering": {"link add probe type bridge vlan_filtering 1"},
	}
}

// Need skips the test, with a message in one line, when the kernel lacks one of the Features, which it probes by use.
// With WEFT_NO_SKIP set a missing feature fails the test instead.
func Need(t testing.TB, features ...string) {
	t.Helper()
	known := Features()
	for _, feature := range features {
		if known[feature] == nil {
			t.Fatalf("nettest: unknown feature %q", feature)
		}
		ns := NS(t, "probe-"+feature)
		for _, line := range known[feature] {
			if out, err := Try(ns, append([]string{"ip"}, strings.Fields(line)...)...); err != nil {
				Skip(t, fmt.Sprintf("this kernel has no %s (ip %s: %s)", feature, line, strings.TrimSpace(out)))
			}
		}
		Run(t, ns, "ip", "link", "show", "probe")
	}
}

// NeedDevices skips the test when it may not mount devtmpfs, where the kernel creates the files of devices: only root of
// the host may.
func NeedDevices(t testing.TB) {
	t.Helper()
	fs, err := unix.Fsopen("devtmpfs", unix.FSOPEN_CLOEXEC)
	if err == nil {
		err = unix.FsconfigCreate(fs)
		_ = unix.Close(fs)
	}
	if err != nil {
		Skip(t, "devtmpfs cannot be mounted: "+err.Error())
	}
}

// NeedBridgeNetfilter skips the test when IP rules do not see bridged packets: br_netfilter is a module that nothing
// loads automatically (test/deps.sh does).
func NeedBridgeNetfilter(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables"); err != nil {
		Skip(t, "no br_netfilter in this kernel, or it is not loaded")
	}
}
