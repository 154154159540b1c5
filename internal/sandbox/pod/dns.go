// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/model"
)

// DNS is the configuration of a resolver. Its JSON is the dns capability of CNI.
type DNS struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

type engineDNS = model.DNS

func (d DNS) empty() bool { return len(d.Servers)+len(d.Searches)+len(d.Options) == 0 }

// Resolver returns the pod's resolver configuration by its dnsPolicy and dnsConfig. The network's resolvers (the dns of
// the CNI result) take the place of the node's.
func Resolver(p *v1.Pod, node Node, net model.DNS) DNS {
	var d DNS
	policy := p.Spec.DNSPolicy
	cluster := len(node.ClusterDNS) > 0 &&
		(policy == v1.DNSClusterFirst && !p.Spec.HostNetwork || policy == v1.DNSClusterFirstWithHostNet)
	switch {
	case policy == v1.DNSNone:
	case cluster:
		d = DNS{Servers: slices.Clone(node.ClusterDNS), Options: []string{"ndots:5"}}
		if node.Domain != "" {
			d.Searches = []string{p.Namespace + ".svc." + node.Domain, "svc." + node.Domain, node.Domain}
		}
		d.Searches = append(d.Searches, parseResolvConf(node.ResolvConf).Searches...)
	case !net.IsZero():
		d = DNS{Servers: net.Nameservers, Searches: net.Search, Options: net.Options}
		if net.Domain != "" {
			d.Searches = append([]string{net.Domain}, d.Searches...)
		}
	default:
		d = parseResolvConf(node.ResolvConf)
	}
	if c := p.Spec.DNSConfig; c != nil {
		d.Servers = append(slices.Clone(d.Servers), c.Nameservers...)
		d.Searches = append(slices.Clone(d.Searches), c.Searches...)
		d.Options = mergeOptions(d.Options, c.Options)
	}
	d.Servers, d.Searches = unique(d.Servers), unique(d.Searches)
	return d
}

func unique(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// mergeOptions merges options; the pod's own replace those with the same name.
func mergeOptions(base []string, own []v1.PodDNSConfigOption) []string {
	var out []string
	for _, o := range base {
		name, _, _ := strings.Cut(o, ":")
		if !slices.ContainsFunc(own, func(x v1.PodDNSConfigOption) bool { return x.Name == name }) {
			out = append(out, o)
		}
	}
	for _, o := range own {
		if o.Value != nil {
			out = append(out, o.Name+":"+*o.Value)
			continue
		}
		out = append(out, o.Name)
	}
	return out
}

func parseResolvConf(b []byte) DNS {
	var d DNS
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) < 2 || strings.HasPrefix(f[0], "#") || strings.HasPrefix(f[0], ";") {
			continue
		}
		switch f[0] {
		case "nameserver":
			d.Servers = append(d.Servers, f[1])
		case "search", "domain":
			d.Searches = f[1:] // the last line wins
		case "options":
			d.Options = append(d.Options, f[1:]...)
		}
	}
	return d
}

// ResolvConf returns the content of /etc/resolv.conf.
func (d DNS) ResolvConf() []byte {
	var b bytes.Buffer
	for _, s := range d.Servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(d.Searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(d.Searches, " "))
	}
	if len(d.Options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(d.Options, " "))
	}
	return b.Bytes()
}

// Hosts returns the content of the pod's /etc/hosts.
func Hosts(p *v1.Pod, ips []string) []byte {
	var b bytes.Buffer
	b.WriteString("# written by weft for pod " + Name(p) +
		"\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n")
	name := Hostname(p)
	if p.Spec.Subdomain != "" {
		name = fmt.Sprintf("%s.%s.%s.svc\t%s", name, p.Spec.Subdomain, p.Namespace, name)
	}
	for _, ip := range ips {
		fmt.Fprintf(&b, "%s\t%s\n", ip, name)
	}
	for _, a := range p.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return b.Bytes()
}
