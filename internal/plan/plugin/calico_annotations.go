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

// These are the prefixes of the annotations that are read.
const (
	calicoCNI = "cni.projectcalico.org/"
	// HardwareAddr is the annotation with the MAC of a pod's interface.
	HardwareAddr = calicoCNI + "hwAddr"
	calicoQoS    = "qos.projectcalico.org/"
	kubeRate     = "kubernetes.io/"
	// addressClaim is the annotation that names the AddressClaim whose addresses the pod uses.
	addressClaim = "weft.dev/address-claim"
)

// CalicoAnnotations returns the annotations of a pod that the planner reads, sorted by name. A namespace's pools and
// families apply to its pods unless the pod has the annotation itself.
func CalicoAnnotations(pod, namespace map[string]string) [][2]string {
	var out [][2]string
	for key, value := range pod {
		rest, cni := strings.CutPrefix(key, calicoCNI)
		reserved := rest == "podIP" || rest == "podIPs" || rest == "containerID" // by Calico
		if value != "" && (cni && !reserved || strings.HasPrefix(key, calicoQoS) || IsKubeRate(key) || key == addressClaim) {
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

// IsKubeRate reports whether an annotation is one of Kubernetes' bandwidth annotations, which a runtime passes to
// plugin bandwidth if the list has it.
func IsKubeRate(key string) bool {
	return key == kubeRate+"ingress-bandwidth" || key == kubeRate+"egress-bandwidth"
}

// calicoSpec is what annotations configure for a pod's interface.
type calicoSpec struct {
	request  model.AddressRequest
	noIPAM   []netip.Addr
	mac      state.MAC
	floating []netip.Addr
	sources  []netip.Prefix
	qos      qos
}

// spec reads the annotations of the request's pod. Without policy.type k8s none are read, as with Calico.
func (c calicoConf) spec(r model.Request) (calicoSpec, error) {
	var w calicoSpec
	if r.Origin == nil || c.Policy.Type == "" || len(r.Origin.Annotations) == 0 {
		return w, nil
	}
	values := map[string]string{}
	for _, kv := range r.Origin.Annotations {
		values[kv[0]] = kv[1]
	}
	a := annotated{values: values}
	if err := c.checkFeatureControl(values); err != nil {
		return w, err
	}
	w.request = model.AddressRequest{
		Pools4: a.list(calicoCNI + "ipv4pools"), Pools6: a.list(calicoCNI + "ipv6pools"),
		Addrs: a.addrs(calicoCNI+"ipAddrs", true), Families: a.families(calicoCNI + "ipFamilies"),
	}
	w.request.Claim = a.claim(r.Origin.Pod)
	w.noIPAM, w.floating = a.addrs(calicoCNI+"ipAddrsNoIpam", true), a.addrs(calicoCNI+"floatingIPs", false)
	w.mac, w.sources = a.mac(HardwareAddr), a.prefixes(calicoCNI+"allowedSourcePrefixes")
	w.qos = a.qos()
	if a.err == nil {
		a.err = c.checkConflicts(w)
	}
	return w, a.err
}

// checkFeatureControl rejects annotations that the configuration disables, without reading their values.
func (c calicoConf) checkFeatureControl(values map[string]string) error {
	for _, gate := range []struct {
		annotation, name string
		open             bool
	}{
		{"ipAddrsNoIpam", "ip_addrs_no_ipam", c.Features.NoIPAM},
		{"floatingIPs", "floating_ips", c.Features.Floating},
		{"allowedSourcePrefixes", "source_prefixes", c.Features.Sources},
	} {
		if values[calicoCNI+gate.annotation] != "" && !gate.open {
			return model.Errorf(model.CodeInvalidConf, `set "feature_control": {"`+gate.name+
				`": true} in the network's configuration, or leave the annotation out`,
				"annotation %s%s: feature_control.%s is off", calicoCNI, gate.annotation, gate.name)
		}
	}
	return nil
}

// checkConflicts rejects annotations that exclude each other or do not work with the IPAM plugin.
func (c calicoConf) checkConflicts(w calicoSpec) error {
	switch {
	case len(w.request.Addrs) > 0 && len(w.noIPAM) > 0:
		return model.Errorf(model.CodeInvalidConf, "leave one out",
			"annotations %sipAddrs and %sipAddrsNoIpam exclude each other", calicoCNI, calicoCNI)
	case w.request.Claim != "" && len(w.request.Addrs)+len(w.noIPAM) > 0:
		return model.Errorf(model.CodeInvalidConf, "leave one out", "annotations %s and %sipAddrs exclude each other",
			addressClaim, calicoCNI)
	case w.request.Claim != "" && c.ipam != "calico-ipam":
		return model.Errorf(model.CodeInvalidConf, "it needs calico-ipam", "annotation %s: ipam.type %s does not support claims",
			addressClaim, c.ipam)
	case len(w.request.Addrs) > 0 && c.ipam != "calico-ipam":
		return model.Errorf(model.CodeInvalidConf, "it needs calico-ipam",
			"annotation %sipAddrs: ipam.type %s cannot allocate a requested address", calicoCNI, c.ipam)
	case len(w.noIPAM) > 0 && c.ipam != "calico-ipam" && c.ipam != "static":
		return model.Errorf(model.CodeInvalidConf, "it needs calico-ipam", "annotation %sipAddrsNoIpam: ipam.type is %s",
			calicoCNI, c.ipam)
	}
	return nil
}

// annotated reads annotations and records the first error.
type annotated struct {
	values map[string]string
	err    error
}

func (a *annotated) fail(key, hint, format string, args ...any) {
	if a.err == nil {
		a.err = model.Errorf(model.CodeInvalidConf, hint, "annotation %s: %s", key, fmt.Sprintf(format, args...))
	}
}

// claim returns the AddressClaim that the pod names, in its own namespace.
func (a *annotated) claim(pod model.PodRef) string {
	name := a.values[addressClaim]
	if name == "" {
		return ""
	}
	if err := model.CheckName("annotation "+addressClaim+":", name); err != nil && a.err == nil {
		a.err = err
	}
	return pod.Namespace + "/" + name
}

// maxEntries limits the length of a list: each entry is compared with the others and may become an entry of the node's
// tables. A user who may create a pod may write an annotation of 256 KiB.
const maxEntries = 64

// list reads an annotation that is a JSON list of strings.
func (a *annotated) list(key string) []string {
	text := a.values[key]
	if text == "" {
		return nil
	}
	var out []string
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		a.fail(key, `for example ["a", "b"]`, "%.60q is not a JSON list of strings", text)
	}
	if len(out) > maxEntries {
		a.fail(key, "leave some out", "%d entries are more than %d", len(out), maxEntries)
		return nil
	}
	return out
}

// addrs reads a list of addresses; single permits one address per family.
func (a *annotated) addrs(key string, single bool) []netip.Addr {
	var out []netip.Addr
	for _, text := range a.list(key) {
		addr, err := netip.ParseAddr(strings.TrimSpace(text))
		addr = addr.Unmap()
		if err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback() ||
			addr.IsLinkLocalUnicast() {
			a.fail(key, `for example ["10.0.0.7"]`, "%.60q is not a host address", text)
			return nil
		}
		same := func(o netip.Addr) bool { return o == addr || single && o.Is4() == addr.Is4() }
		if i := slices.IndexFunc(out, same); i >= 0 {
			a.fail(key, "at most one IPv4 and one IPv6 address", "%s and %s", addr, out[i])
			return nil
		}
		out = append(out, addr)
	}
	if a.values[key] != "" && len(out) == 0 && a.err == nil {
		a.fail(key, "leave it out", "it contains no address")
	}
	return out
}

func (a *annotated) families(key string) []model.IPFamily {
	var out []model.IPFamily
	for _, text := range a.list(key) {
		f := model.IPFamily(text)
		if f != model.IPv4 && f != model.IPv6 {
			a.fail(key, "IPv4 or IPv6", "%.60q is not an IP family", text)
			return nil
		}
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func (a *annotated) mac(key string) state.MAC {
	if a.values[key] == "" {
		return state.MAC{}
	}
	mac, err := state.ParseMAC(a.values[key])
	if err != nil || mac.IsZero() || mac[0]&1 != 0 {
		a.fail(key, "a unicast address, for example 02:00:00:00:00:01",
			"%.60q is not a unicast MAC address", a.values[key])
	}
	return mac
}

// prefixes reads a list of prefixes; a single address is a prefix, too.
func (a *annotated) prefixes(key string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range a.list(key) {
		p, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); err != nil && addrErr == nil {
			p, err = full(addr), nil
		}
		if err != nil || p.Addr().Zone() != "" || p.Addr().Is4In6() {
			a.fail(key, `for example ["192.0.2.0/24"]`, "%.60q is not a prefix", text)
			return nil
		}
		p = p.Masked()
		within := func(o netip.Prefix) bool { return o.Overlaps(p) && o.Bits() <= p.Bits() }
		if !slices.ContainsFunc(out, within) { // the kernel rejects overlapping ranges
			out = append(slices.DeleteFunc(out, p.Overlaps), p)
		}
	}
	return out
}

// AddressRequest returns the addresses, pools and families that the annotations of the request's pod request from IPAM.
func (Calico) AddressRequest(in Input) (model.AddressRequest, error) {
	c, err := decoded(in, readCalico)
	if err != nil {
		return model.AddressRequest{}, err
	}
	w, err := c.spec(in.Request)
	return w.request, err
}

// Static returns a configuration whose IPAM plugin is static, with the addresses outside IPAM that the pod's
// annotations name; false if they name none.
func (Calico) Static(conf model.PluginConf, r model.Request) (model.PluginConf, bool, error) {
	if r.Origin == nil ||
		!slices.ContainsFunc(r.Origin.Annotations, func(kv [2]string) bool { return kv[0] == calicoCNI+"ipAddrsNoIpam" }) {
		return conf, false, nil
	}
	c, err := readCalico(conf)
	if err != nil {
		return conf, false, err
	}
	w, err := c.spec(r)
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
		return conf, false, model.Errorf(model.CodeInternal, "", "plugin calico: ipam: %w", err)
	}
	return conf, true, nil
}
