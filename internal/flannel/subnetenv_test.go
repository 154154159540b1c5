// SPDX-License-Identifier: Apache-2.0

package flannel_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/flannel"
)

const dual = `FLANNEL_NETWORK=10.42.0.0/16
FLANNEL_SUBNET=10.42.3.1/24
FLANNEL_IPV6_NETWORK=fd00:42::/56
FLANNEL_IPV6_SUBNET=fd00:42:0:3::1/64
FLANNEL_MTU=1450
FLANNEL_IPMASQ=true
`

// What flanneld writes is read, and written again as it was.
func TestSubnetEnv(t *testing.T) {
	lines := strings.SplitAfter(dual, "\n")
	for name, text := range map[string]string{
		"dual stack": dual,
		"IPv4":       strings.Join(append(lines[:2:2], lines[4:]...), ""),
		"IPv6":       strings.Join(lines[2:], ""),
		"several":    strings.Replace(dual, "10.42.0.0/16", "10.42.0.0/16,10.43.0.0/16", 1),
		"off":        strings.Replace(dual, "true", "false", 1),
	} {
		e, err := flannel.ParseSubnetEnv([]byte(text))
		if err != nil || e.String() != text {
			t.Errorf("%s: %v\n%s", name, err, e)
		}
		if e.IPMasq != strings.Contains(text, "true") || e.MTU != 1450 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestBadSubnetEnv(t *testing.T) {
	for _, tt := range []struct {
		was, is, words string
		incomplete     bool
	}{
		{
			dual, "",
			"FLANNEL_NETWORK or FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET or FLANNEL_IPV6_SUBNET, FLANNEL_MTU, FLANNEL_IPMASQ is missing: it is incomplete", true,
		},
		{"FLANNEL_MTU=1450\n", "", "FLANNEL_MTU is missing: it is incomplete", true},
		{"10.42.0.0/16", "10.42.0.0", `FLANNEL_NETWORK "10.42.0.0" is no prefix`, false},
		{"10.42.3.1/24", "fd00::1/64", `FLANNEL_SUBNET "fd00::1/64" is of the other family`, false},
		{"fd00:42:0:3::1/64", "10.42.3.1/24", `FLANNEL_IPV6_SUBNET "10.42.3.1/24" is of the other family`, false},
		{"1450", "-1", `FLANNEL_MTU "-1" is no number from 0 to 65535`, false},
		{"=1450", "", `FLANNEL_MTU "" is no number from 0 to 65535`, false},
	} {
		_, err := flannel.ParseSubnetEnv([]byte(strings.Replace(dual, tt.was, tt.is, 1)))
		if err == nil || err.Error() != tt.words || errors.Is(err, flannel.ErrIncomplete) != tt.incomplete {
			t.Errorf("%q for %q: %v", tt.is, tt.was, err)
		}
	}
}

// A node's own file is made of its prefixes.
func TestSubnetEnvOfANode(t *testing.T) {
	both := `{"Network":"10.42.0.0/16","IPv6Network":"fd00:42::/56","EnableIPv6":true,"Backend":{"Type":"vxlan"}}`
	four := `{"Network":"10.42.0.0/16","Backend":{"Type":"vxlan"}}`
	for _, tt := range []struct{ conf, cidrs, want string }{
		{both, "10.42.3.0/24 fd00:42:0:3::/64", dual},
		{
			four, "fd00:42:0:3::/64 10.42.3.0/24",
			strings.Join(append(strings.SplitAfter(dual, "\n")[:2:2], strings.SplitAfter(dual, "\n")[4:]...), ""),
		},
		{
			four, "10.43.3.0/24",
			"podCIDR 10.43.3.0/24 is not in Network 10.42.0.0/16 (give the controller manager the --cluster-cidr that net-conf.json has)",
		},
		{
			four, "10.0.0.0/8",
			"podCIDR 10.0.0.0/8 is not in Network 10.42.0.0/16 (give the controller manager the --cluster-cidr that net-conf.json has)",
		},
		{
			four, "fd00:42:0:3::/64",
			"the node has no podCIDR of a family that net-conf.json has on (give the Node object podCIDRs (kube-controller-manager --allocate-node-cidrs))",
		},
	} {
		conf, _, err := flannel.ParseNetConf([]byte(tt.conf))
		if err != nil {
			t.Fatal(err)
		}
		var cidrs []netip.Prefix
		for s := range strings.FieldsSeq(tt.cidrs) {
			cidrs = append(cidrs, netip.MustParsePrefix(s))
		}
		got := ""
		if e, err := conf.SubnetEnv(cidrs, 1450, true); err != nil {
			got = err.Error()
		} else {
			got = e.String()
		}
		if got != tt.want {
			t.Errorf("%s of %s:\n%s\nwant\n%s", tt.cidrs, tt.conf, got, tt.want)
		}
	}
}

func FuzzSubnetEnv(f *testing.F) {
	f.Add(dual)
	f.Add("FLANNEL_NETWORK\nFLANNEL_MTU==\n")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := flannel.ParseSubnetEnv([]byte(text))
		if err != nil || !e.Subnet.IsValid() && !e.IPv6Subnet.IsValid() {
			return
		}
		again, err := flannel.ParseSubnetEnv([]byte(e.String()))
		if errors.Is(err, flannel.ErrIncomplete) || err == nil && again.String() != e.String() {
			t.Errorf("%q becomes %q, %v", text, e, err)
		}
	})
}
