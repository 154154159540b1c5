// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func row(n int, subject string, o Outcome, seen string) Row {
	return Row{Item: Items()[n-1], Subject: subject, Outcome: o, Seen: seen}
}

func sample() *Report {
	r := &Report{
		BinDir: "/x", Kernel: "6.1.2-vendor", Plugins: []string{"bridge", "ptp", "vlan"},
		Versions: map[string]string{"bridge": "1.1.0", "ptp": "1.1.0", "vlan": "1.0.0"},
		Rows: []Row{
			row(27, "bridge", Pass, ""), row(27, "ptp", Fail, "DEL *exits* with 1"),
			row(27, "vlan", Unsupported, "no vlan links"),
			row(28, "bridge", NotApplied, "never mind"),
			row(70, "weft cni", Pass, ""),
		},
	}
	r.countTotals()
	return r
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := sample().Text(&b); err != nil {
		t.Fatal(err)
	}
	const want = `plugins of /x, kernel 6.1.2-vendor
  bridge       speaks 1.1.0
  ptp          speaks 1.1.0
  vlan         speaks 1.0.0
  not supported here: vlan: no vlan links

item s word     outcome     claim
  27 P must     fail        a repeated DEL succeeds
                   fail        ptp: DEL *exits* with 1
                   pass        bridge
                   unsupported vlan
  28 P should   n/a         DEL succeeds if resources are missing, and releases the others
                   n/a         bridge: never mind
  70 R must     pass        capabilities is not passed on
                   pass        weft cni

2 pass, 1 fail (1 required), 1 not supported here, 1 not applicable
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	if err := Markdown(&b, []Column{{"one", sample()}, {"two", sample()}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Seen on kernel 6.1.2.\n",
		"| one | bridge ptp vlan | 1 | 1 | 1 | 1 |\n",
		"| 27 | P must | a repeated DEL succeeds | 1 pass, **fail:** ptp | 1 pass, **fail:** ptp |\n",
		"### What was seen: two\n\n- 27, ptp: DEL \\*exits\\* with 1\n- not supported here, vlan: no vlan links\n",
		"| 70 | must | capabilities is not passed on | weft cni | pass |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, &b)
		}
	}
}

// Rows of two runs are comparable.
func TestTidy(t *testing.T) {
	for in, want := range map[string]string{
		"left: file /run/weft-conformance/worlds/kit12/data/kit12/10.23.0.3": "left: file …/data/net/10.23.0.3",
		"link veth0123abcd of kitbr0":                                        "link veth… of kitbr0",
		"chain CNI-4863a2a41d32ef15b3be804a":                                 "chain CNI-…",
		"journal/kit7,kit7-pod2,eth0.json":                                   "journal/net,pod2,eth0.json",
		"mac 02:00:aa:00:00:01 of kitv2":                                     "mac MAC of kitv2",
	} {
		if got := normalize(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// Items are numbered consecutively, and every item has a check or a reason why it has none.
func TestItems(t *testing.T) {
	checked := map[int]bool{}
	for _, j := range itemChecks() {
		checked[j.item] = true
	}
	callers := []caller{cniCaller(), agentCaller()}
	for _, item := range Items() {
		for _, c := range callers {
			if item.Side == "R" {
				checked[item.Number] = c.notApplicable[item.Number] != "" ||
					slices.ContainsFunc(c.checks, func(tr runtimeCheck) bool { return tr.item == item.Number })
			}
		}
	}
	for i, item := range Items() {
		if item.Number != i+1 {
			t.Errorf("item %d is at index %d", item.Number, i+1)
		}
		if !checked[item.Number] {
			t.Errorf("item %d (%s) has neither a check nor a reason", item.Number, item.Claim)
		}
	}
}

// Invalid results are detected in each version.
func TestForm(t *testing.T) {
	for _, tt := range []struct{ version, result, want string }{
		{"1.1.0", `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}]}`, ""},
		{"1.1.0", `{"cniVersion":"1.0.0"}`, `cniVersion is "1.0.0", the configuration's is "1.1.0"`},
		{"1.1.0", `{"cniVersion":"1.1.0"} {}`, "not a JSON object"},
		{"1.1.0", `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2"}]}`, "not an address with prefix length"},
		{"1.1.0", `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24","gateway":"x"}]}`, "is not an address"},
		{
			"1.1.0", `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24","version":"4"}]}`,
			"belongs to versions before 1.0.0",
		},
		{"1.1.0", `{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24","interface":0}]}`, "there are 0 interfaces"},
		{"1.1.0", `{"cniVersion":"1.1.0","ip4":{}}`, "ip4 belongs to versions before 0.3.0"},
		{"1.1.0", `{"cniVersion":"1.1.0","routes":[{"dst":"far"}]}`, "is not a prefix"},
		{"1.1.0", `{"cniVersion":"1.1.0","interfaces":[{}]}`, "has no name"},
		{"0.4.0", `{"cniVersion":"0.4.0","ips":[{"address":"10.0.0.2/24","version":"4"}]}`, ""},
		{"0.4.0", `{"cniVersion":"0.4.0","ips":[{"address":"10.0.0.2/24"}]}`, `requires "4"`},
		{"0.2.0", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"}}`, ""},
		{"0.2.0", `{"cniVersion":"0.2.0","ips":[]}`, "ips belongs to versions from 0.3.0 on"},
		{"0.2.0", `{"cniVersion":"0.2.0","ip6":{"ip":"10.0.0.2/24"}}`, "not a prefix of its family"},
		{"0.2.0", `{"cniVersion":"0.2.0"}`, "neither ip4 nor ip6"},
	} {
		err := validateResult([]byte(tt.result), tt.version, true)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.result, err, tt.want)
		}
	}
}
