// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// MasqAgent is ip-masq-agent's configuration: the destinations whose packets keep the pod's own address, in addition to
// the network itself.
type MasqAgent struct {
	// NonMasquerade are the destinations.
	NonMasquerade []netip.Prefix
	// MasqLinkLocal and MasqLinkLocalV6 have link-local destinations see the node's address; else they see the pod's.
	MasqLinkLocal, MasqLinkLocalV6 bool
	// Resync is how often the file is read again.
	Resync time.Duration
}

// The link-local prefixes.
var (
	linkLocal4 = netip.MustParsePrefix("169.254.0.0/16")
	linkLocal6 = netip.MustParsePrefix("fe80::/10")
)

// ParseMasqAgent decodes the configuration, which the caller has converted from YAML to JSON. An empty file is the
// default: nothing but link-local destinations keeps the pod's address.
func ParseMasqAgent(text []byte) (MasqAgent, []model.Warning, error) {
	m := MasqAgent{Resync: time.Minute}
	if len(bytes.TrimSpace(text)) == 0 {
		return m, nil, nil
	}
	var resync string
	var cidrs json.RawMessage
	warnings, err := decode("ip-masq-agent.", text, []field{
		{"nonMasqueradeCIDRs", &cidrs},
		{"masqLinkLocal", &m.MasqLinkLocal},
		{"masqLinkLocalIPv6", &m.MasqLinkLocalV6},
		{"resyncInterval", &resync},
	})
	if err != nil {
		return m, warnings, err
	}
	var list []string
	if len(cidrs) > 0 {
		if err := json.Unmarshal(cidrs, &list); err != nil {
			return m, warnings, model.Errorf(model.CodeInvalidConf, `write for example ["10.0.0.0/8"]`,
				"ip-masq-agent.nonMasqueradeCIDRs %s is no list of prefixes", short(cidrs))
		}
	}
	const most = 64 // as ip-masq-agent
	if len(list) > most {
		return m, warnings, model.Errorf(model.CodeInvalidConf, "join neighboring prefixes",
			"ip-masq-agent.nonMasqueradeCIDRs has %d entries, %d are possible", len(list), most)
	}
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return m, warnings, model.Errorf(model.CodeInvalidConf, `write for example "10.0.0.0/8"`,
				"ip-masq-agent.nonMasqueradeCIDRs %q is no prefix", text)
		}
		m.NonMasquerade = append(m.NonMasquerade, p)
	}
	if resync != "" {
		if m.Resync, err = time.ParseDuration(resync); err != nil || m.Resync < time.Second {
			return m, warnings, model.Errorf(model.CodeInvalidConf, `write for example "60s"`,
				"ip-masq-agent.resyncInterval %q is no duration of a second or more", resync)
		}
	}
	return m, warnings, nil
}

// Except returns all destinations that keep the pod's address.
func (m MasqAgent) Except() []netip.Prefix {
	out := append([]netip.Prefix{}, m.NonMasquerade...)
	if !m.MasqLinkLocal {
		out = append(out, linkLocal4)
	}
	if !m.MasqLinkLocalV6 {
		out = append(out, linkLocal6)
	}
	return out
}
