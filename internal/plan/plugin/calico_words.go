// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// What Calico's annotations begin with.
const (
	calicoCNI = "cni.projectcalico.org/"
	calicoQoS = "qos.projectcalico.org/"
	kubeRate  = "kubernetes.io/"
	// addressClaim names the AddressClaim whose addresses the pod gets.
	addressClaim = "weft.dev/address-claim"
)

// CalicoAnnotations are the annotations of a pod that a planner reads, in the order of their names. What a namespace
// says of pools and families holds for its pods that say nothing of it.
func CalicoAnnotations(pod, namespace map[string]string) [][2]string {
	var out [][2]string
	for key, value := range pod {
		rest, cni := strings.CutPrefix(key, calicoCNI)
		told := rest == "podIP" || rest == "podIPs" || rest == "containerID" // by Calico
		if value != "" && (cni && !told || strings.HasPrefix(key, calicoQoS) || IsKubeRate(key) || key == addressClaim) {
			out = append(out, [2]string{key, value})
		}
	}
	for _, word := range []string{"ipv4pools", "ipv6pools", "ipFamilies"} {
		if value := namespace[calicoCNI+word]; value != "" && pod[calicoCNI+word] == "" {
			out = append(out, [2]string{calicoCNI + word, value})
		}
	}
	slices.SortFunc(out, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return out
}

// IsKubeRate tells whether an annotation is Kubernetes' own word about bandwidth, which a runtime hands to a bandwidth
// plugin where there is one.
func IsKubeRate(key string) bool {
	return key == kubeRate+"ingress-bandwidth" || key == kubeRate+"egress-bandwidth"
}

// calicoWords are what annotations say of a pod's interface.
type calicoWords struct {
	wishes   model.AddressWishes
	noIPAM   []netip.Addr
	mac      state.MAC
	floating []netip.Addr
	sources  []netip.Prefix
	qos      qos
}

// words reads the annotations of the request's pod. Without policy.type k8s Calico does not ask for any.
func (c calicoConf) words(r model.Request) (calicoWords, error) {
	var w calicoWords
	if r.Origin == nil || c.Policy.Type == "" || len(r.Origin.Annotations) == 0 {
		return w, nil
	}
	said := map[string]string{}
	for _, kv := range r.Origin.Annotations {
		said[kv[0]] = kv[1]
	}
	a := annotated{said: said}
	if err := c.gates(said); err != nil {
		return w, err
	}
	w.wishes = model.AddressWishes{
		Pools4: a.list(calicoCNI + "ipv4pools"), Pools6: a.list(calicoCNI + "ipv6pools"),
		Addrs: a.addrs(calicoCNI+"ipAddrs", true), Families: a.families(calicoCNI + "ipFamilies"),
	}
	w.wishes.Claim = a.claim(r.Origin.Pod)
	w.noIPAM, w.floating = a.addrs(calicoCNI+"ipAddrsNoIpam", true), a.addrs(calicoCNI+"floatingIPs", false)
	w.mac, w.sources = a.mac(calicoCNI+"hwAddr"), a.prefixes(calicoCNI+"allowedSourcePrefixes")
	w.qos = a.qos()
	if a.err == nil {
		a.err = c.permits(w)
	}
	return w, a.err
}

// gates refuses what the configuration does not permit pods to say at all: what it says is not read.
func (c calicoConf) gates(said map[string]string) error {
	for _, gate := range []struct {
		annotation, name string
		open             bool
	}{
		{"ipAddrsNoIpam", "ip_addrs_no_ipam", c.Features.NoIPAM},
		{"floatingIPs", "floating_ips", c.Features.Floating},
		{"allowedSourcePrefixes", "source_prefixes", c.Features.Sources},
	} {
		if said[calicoCNI+gate.annotation] != "" && !gate.open {
			return model.Faultf(model.CodeInvalidConf, `set "feature_control": {"`+gate.name+
				`": true} in the network's configuration, or leave the annotation out`,
				"annotation %s%s: feature_control.%s is off", calicoCNI, gate.annotation, gate.name)
		}
	}
	return nil
}

// permits refuses what does not go together.
func (c calicoConf) permits(w calicoWords) error {
	switch {
	case len(w.wishes.Addrs) > 0 && len(w.noIPAM) > 0:
		return model.Faultf(model.CodeInvalidConf, "leave one out",
			"annotations %sipAddrs and %sipAddrsNoIpam exclude each other", calicoCNI, calicoCNI)
	case w.wishes.Claim != "" && len(w.wishes.Addrs)+len(w.noIPAM) > 0:
		return model.Faultf(model.CodeInvalidConf, "leave one out", "annotations %s and %sipAddrs exclude each other",
			addressClaim, calicoCNI)
	case w.wishes.Claim != "" && c.ipam != "calico-ipam":
		return model.Faultf(model.CodeInvalidConf, "it needs calico-ipam", "annotation %s: ipam.type %s keeps no addresses",
			addressClaim, c.ipam)
	case len(w.wishes.Addrs) > 0 && c.ipam != "calico-ipam":
		return model.Faultf(model.CodeInvalidConf, "it needs calico-ipam",
			"annotation %sipAddrs: ipam.type %s gives no address that is asked for", calicoCNI, c.ipam)
	case len(w.noIPAM) > 0 && c.ipam != "calico-ipam" && c.ipam != "static":
		return model.Faultf(model.CodeInvalidConf, "it needs calico-ipam", "annotation %sipAddrsNoIpam: ipam.type is %s",
			calicoCNI, c.ipam)
	}
	return nil
}

// annotated reads annotations and keeps the first error.
type annotated struct {
	said map[string]string
	err  error
}

func (a *annotated) fail(key, hint, format string, args ...any) {
	if a.err == nil {
		a.err = model.Faultf(model.CodeInvalidConf, hint, "annotation %s: %s", key, fmt.Sprintf(format, args...))
	}
}

// claim is the claim that the pod names, in its own namespace.
func (a *annotated) claim(pod model.PodRef) string {
	name := a.said[addressClaim]
	if name == "" {
		return ""
	}
	if err := model.CheckName("annotation "+addressClaim+":", name); err != nil && a.err == nil {
		a.err = err
	}
	return pod.Namespace + "/" + name
}

// mostWords bounds a list: each of its words is compared with the others, and may become an entry of the node's tables.
// Whoever may make a pod may write an annotation of 256 KiB.
const mostWords = 64

// list is an annotation that is a list of texts in JSON.
func (a *annotated) list(key string) []string {
	text := a.said[key]
	if text == "" {
		return nil
	}
	var out []string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		a.fail(key, `for example ["a", "b"]`, "%.60q is no list of texts in JSON", text)
	}
	if len(out) > mostWords {
		a.fail(key, "leave some out", "%d entries, and %d at most are read", len(out), mostWords)
		return nil
	}
	return out
}

// addrs is a list of addresses, with single of one address of a family at most.
func (a *annotated) addrs(key string, single bool) []netip.Addr {
	var out []netip.Addr
	for _, text := range a.list(key) {
		addr, err := netip.ParseAddr(strings.TrimSpace(text))
		addr = addr.Unmap()
		if err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback() ||
			addr.IsLinkLocalUnicast() {
			a.fail(key, `for example ["10.0.0.7"]`, "%.60q is no address of a host", text)
			return nil
		}
		same := func(o netip.Addr) bool { return o == addr || single && o.Is4() == addr.Is4() }
		if i := slices.IndexFunc(out, same); i >= 0 {
			a.fail(key, "one of IPv4 and one of IPv6 at most", "%s beside %s", addr, out[i])
			return nil
		}
		out = append(out, addr)
	}
	if a.said[key] != "" && len(out) == 0 && a.err == nil {
		a.fail(key, "leave it out", "there is no address in it")
	}
	return out
}

func (a *annotated) families(key string) []model.IPFamily {
	var out []model.IPFamily
	for _, text := range a.list(key) {
		f := model.IPFamily(text)
		if f != model.IPv4 && f != model.IPv6 {
			a.fail(key, "IPv4 or IPv6", "%.60q is no family", text)
			return nil
		}
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func (a *annotated) mac(key string) state.MAC {
	if a.said[key] == "" {
		return state.MAC{}
	}
	mac, err := state.ParseMAC(a.said[key])
	if err != nil || mac.IsZero() || mac[0]&1 != 0 {
		a.fail(key, "six bytes, the first one even, for example 02:00:00:00:00:01",
			"%.60q is no hardware address of an interface", a.said[key])
	}
	return mac
}

// prefixes is a list of prefixes; a single address is one.
func (a *annotated) prefixes(key string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range a.list(key) {
		p, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); err != nil && addrErr == nil {
			p, err = full(addr), nil
		}
		if err != nil || p.Addr().Zone() != "" || p.Addr().Is4In6() {
			a.fail(key, `for example ["192.0.2.0/24"]`, "%.60q is no prefix", text)
			return nil
		}
		p = p.Masked()
		within := func(o netip.Prefix) bool { return o.Overlaps(p) && o.Bits() <= p.Bits() }
		if !slices.ContainsFunc(out, within) { // the kernel takes no ranges that overlap
			out = append(slices.DeleteFunc(out, p.Overlaps), p)
		}
	}
	return out
}

// Wishes is what the annotations of the request's pod say of the addresses that IPAM is to give.
func (Calico) Wishes(in Input) (model.AddressWishes, error) {
	c, err := decoded(in, readCalico)
	if err != nil {
		return model.AddressWishes{}, err
	}
	w, err := c.words(in.Request)
	return w.wishes, err
}

// Static is a configuration whose addresses are those that the pod's annotations bring along, past IPAM; false: they
// bring none.
func (Calico) Static(conf model.PluginConf, r model.Request) (model.PluginConf, bool, error) {
	if r.Origin == nil ||
		!slices.ContainsFunc(r.Origin.Annotations, func(kv [2]string) bool { return kv[0] == calicoCNI+"ipAddrsNoIpam" }) {
		return conf, false, nil
	}
	c, err := readCalico(conf)
	if err != nil {
		return conf, false, err
	}
	w, err := c.words(r)
	if err != nil || len(w.noIPAM) == 0 {
		return conf, false, err
	}
	var fields map[string]json.RawMessage
	if err := decode(conf, &fields); err != nil {
		return conf, false, err
	}
	type address struct {
		Address netip.Prefix `json:"address"`
	}
	var ipam struct {
		Type      string    `json:"type"`
		Addresses []address `json:"addresses"`
	}
	ipam.Type = "static"
	for _, a := range w.noIPAM {
		ipam.Addresses = append(ipam.Addresses, address{full(a)})
	}
	if fields["ipam"], err = json.Marshal(ipam); err == nil {
		conf.Raw, err = json.Marshal(fields)
	}
	if err != nil {
		return conf, false, model.Faultf(model.CodeInternal, "", "plugin calico: ipam: %w", err)
	}
	return conf, true, nil
}
